"""The console: a cluster in a browser, on one page for each thing that commands show.

Invariants: a thin view over `admin` and `explain`: nothing is asked, judged or changed here in a
way of its own; works against a real Kafka as well, without what only the files of a local cluster
tell; nothing is fetched from elsewhere and nothing runs in the browser but `static/`; whatever a
cluster says is data and is escaped.
"""
