"""All commands with their first sentences, so that they are listed without being imported.

Invariant: a test compares each sentence with the function's docstring.
"""

from collections.abc import Mapping

from ottla.cli.tree import Command, Group, Node

HERE, DATA, CARE, INSIDE, SETUP = (
    "A cluster on this machine",
    "Topics and records",
    "Groups, transactions, replicas",
    "Look inside",
    "This command line",
)


def _of(module: str, commands: dict[str, tuple[str, str]]) -> dict[str, Node]:
    """Return commands of one module: name -> (function, summary)."""
    return {
        name: Command(f"{module}:{function}", summary)
        for name, (function, summary) in commands.items()
    }


def _one(module: str, function: str, summary: str, section: str) -> Command:
    return Command(f"{module}:{function}", summary, section)


BROKER = Group(
    "Stop, start, restart, kill, pause, resume, cut, drain and remove single brokers.",
    _of(
        "ottla.admin.commands.brokers",
        {
            "stop": ("stop", "Stop brokers by a controlled shutdown."),
            "start": ("start", "Start brokers that are down, and wait until they serve."),
            "restart": ("restart", "Restart brokers one after the other."),
            "kill": ("kill", "Kill brokers at once (SIGKILL), as a crash does."),
            "pause": ("pause", "Pause brokers (SIGSTOP)."),
            "resume": ("resume", "Let paused brokers go on (SIGCONT)."),
            "cut": ("cut", "Cut a broker from other brokers and ZooKeeper."),
            "heal": ("heal", "End all cuts of brokers."),
            "drain": ("drain", "Move all replicas of a broker to the others."),
            "shutdown": (
                "shutdown",
                "Move all leaders off a broker, so that its process can be stopped.",
            ),
            "remove": ("remove", "Take a drained broker out of the cluster."),
        },
    ),
    HERE,
    "`ottla broker run --config FILE` runs one broker in the foreground, `ottla zookeeper run "
    "--data-dir FOLDER` our ZooKeeper server, `ottla zookeeper copy FROM TO` takes its znodes to "
    "another server.",
)
TOPICS = Group(
    "Create, list, describe, alter, measure and delete topics.",
    _of(
        "ottla.admin.commands.topics",
        {
            "create": ("create", "Create a topic."),
            "list": ("list_command", "List the topics."),
            "describe": (
                "describe",
                (
                    "Show partitions, replicas and settings of topics; or what is wrong with any "
                    "of them."
                ),
            ),
            "alter": ("alter", "Give a topic more partitions or other settings."),
            "delete": ("delete", "Delete topics and their records."),
        },
    )
    | _of(
        "ottla.admin.commands.topic_offsets",
        {
            "offsets": (
                "offsets",
                "Show where the logs of topics begin and end, or the first offset of a time.",
            ),
            "delete-records": ("delete_records", "Delete the first records of partitions."),
        },
    ),
    DATA,
)
CONFIGS = Group(
    "Describe and alter settings of topics and brokers, and quotas of clients.",
    _of(
        "ottla.admin.commands.configs",
        {
            "describe": ("describe", "Show what is set, and where each value comes from."),
            "alter": (
                "alter",
                (
                    "Change settings or quotas: all that is named, or nothing if one of them is "
                    "refused."
                ),
            ),
        },
    ),
    DATA,
)
ACLS = Group(
    "List, add, remove and check access rules.",
    _of(
        "ottla.admin.commands.acls",
        {
            "list": (
                "list_command",
                "List the access rules; with a resource, those that cover it.",
            ),
            "add": ("add", "Allow a principal something, or deny it."),
            "remove": ("remove", "Remove the access rules that all options name together."),
            "check": (
                "check",
                "Tell whether a principal may do something, and which rule says so.",
            ),
        },
    ),
    CARE,
)
USERS = Group(
    "List, add and remove SCRAM users, set and rotate their passwords.",
    _of(
        "ottla.admin.commands.users",
        {
            "list": ("list_command", "List users with SCRAM credentials."),
            "add": ("add", "Give a user a password; a user that exists gets a new one."),
            "remove": ("remove", "Take a user's passwords away: it can connect no more."),
            "rotate": (
                "rotate",
                (
                    "Give users of `ottla up --secure` new random passwords, and write them into "
                    "their files."
                ),
            ),
        },
    ),
    CARE,
)
GROUPS = Group(
    "List, describe, measure, reset and delete consumer groups.",
    _of(
        "ottla.admin.commands.groups",
        {
            "list": ("list_command", "List the groups of the cluster."),
            "describe": ("describe", "Show groups with their members and what each of them reads."),
            "lag": ("lag", "Show how far groups are behind, per partition and in total."),
            "delete": ("delete", "Delete groups without members, and their offsets."),
            "delete-offsets": (
                "delete_offsets",
                "Forget a group's offsets of topics that no member of it reads.",
            ),
            "reset-offsets": ("reset_offsets", "Move a group's offsets."),
        },
    )
    | _of(
        "ottla.admin.commands.group_watching",
        {"watch": ("watch", "Show lag and rates of groups again and again, until Ctrl-C.")},
    ),
    CARE,
)
TRANSACTIONS = Group(
    "List and describe transactions, and abort one that hangs.",
    _of(
        "ottla.admin.commands.transactions",
        {
            "list": ("list_command", "List the transactional ids of the cluster."),
            "describe": (
                "describe",
                "Show transactional ids with their state, producer and partitions.",
            ),
            "producers": (
                "producers",
                (
                    "Show the producers that a partition's leader knows, and where their "
                    "transactions begin."
                ),
            ),
            "hanging": (
                "hanging",
                (
                    "Find open transactions that no coordinator will end: they hold read_committed "
                    "back."
                ),
            ),
            "abort": ("abort", "End a transaction that hangs in one partition."),
        },
    ),
    CARE,
)
REASSIGN = Group(
    "Move replicas to other brokers.",
    _of(
        "ottla.admin.commands.reassign_plan",
        {
            "plan": (
                "plan",
                "Print a plan that balances the topics with the fewest moves.",
            ),
        },
    )
    | _of(
        "ottla.admin.commands.reassign_execute",
        {
            "execute": (
                "execute",
                "Start a plan; print the current assignment, which is the plan to go back.",
            ),
        },
    )
    | _of(
        "ottla.admin.commands.reassign",
        {
            "verify": (
                "verify",
                "Show how far a plan is; when nothing moves any more, remove throttles.",
            ),
            "cancel": ("cancel", "Stop moves and go back to the replicas there were."),
            "list": (
                "list_command",
                "List the moves in progress: how much is copied, how fast, and what is left.",
            ),
        },
    )
    | _of(
        "ottla.admin.commands.reassign_throttles",
        {
            "throttles": (
                "throttles",
                "Show throttles of replication while nothing is reassigned.",
            ),
        },
    ),
    CARE,
)

CLUSTER = Group(
    "A cluster's set-up as one file: take it, compare it, make a cluster like it.",
    _of(
        "ottla.admin.commands.cluster_state",
        {
            "snapshot": (
                "snapshot",
                "Print topics, settings, quotas and groups' offsets, for diff and apply.",
            ),
            "diff": ("diff", "Show what is different in two snapshots, or since one."),
            "apply": ("apply", "Make a cluster like a snapshot: topics, settings, quotas."),
        },
    ),
    CARE,
)
ZNODE = Group(
    "Read what is in ZooKeeper, explained.",
    _of(
        "ottla.admin.commands.znodes",
        {
            "ls": ("ls", "List the znodes below one."),
            "get": ("get", "Show a znode's data, and what ZooKeeper knows about it."),
        },
    ),
    INSIDE,
)
CERTS = Group(
    "Make a CA, issue certificates to brokers and clients, see when they expire, rotate them.",
    _of(
        "ottla.admin.commands.certs",
        {
            "init": ("init", "Create a CA, which issues certificates to brokers and clients."),
            "issue": (
                "issue",
                "Issue a key and a certificate: a broker's with its hosts, a client's without.",
            ),
            "list": (
                "list_command",
                (
                    "Show certificates, their hosts and when they expire; exit code 1 if one is "
                    "not well."
                ),
            ),
            "rotate": (
                "rotate",
                (
                    "Replace certificates by new ones of the same names; brokers load them "
                    "without a restart."
                ),
            ),
        },
    ),
    HERE,
)
PROFILE = Group(
    "Name clusters, and say which one is used.",
    _of(
        "ottla.admin.commands.profiles",
        {
            "list": ("list_command", "List the profiles; the one in use has a star."),
            "show": ("show", "Show which cluster commands would ask now."),
            "set": ("set_command", "Write a profile, or change one: what is not named stays."),
            "use": ("use", "Use a profile from now on, where no other cluster is named."),
            "remove": ("remove", "Remove a profile."),
        },
    ),
    SETUP,
)

COMMANDS: dict[str, Node] = {
    "up": _one(
        "ottla.admin.commands.cluster",
        "up",
        "Start ZooKeeper and brokers on this machine, or those of them that do not run.",
        HERE,
    ),
    "down": _one(
        "ottla.admin.commands.cluster",
        "down",
        "Stop the brokers and ZooKeeper that `ottla up` started; data stays.",
        HERE,
    ),
    "status": _one(
        "ottla.admin.commands.cluster",
        "status",
        "Show brokers, controller and the health of partitions.",
        HERE,
    ),
    "broker": BROKER,
    "certs": CERTS,
    "demo": _one(
        "ottla.admin.commands.cluster",
        "demo",
        "Three brokers, two kill -9, flights produced, verified, and landed in Parquet by Spark.",
        HERE,
    ),
    "topics": TOPICS,
    "produce": _one(
        "ottla.admin.commands.produce",
        "produce",
        "Produce records: lines of standard input, JSON, or files.",
        DATA,
    ),
    "consume": _one(
        "ottla.admin.commands.consume",
        "consume",
        "Print records, one per line, until Ctrl-C or --max-messages.",
        DATA,
    ),
    "configs": CONFIGS,
    "groups": GROUPS,
    "txn": TRANSACTIONS,
    "acls": ACLS,
    "reassign": REASSIGN,
    "elect": _one("ottla.admin.commands.elect", "elect", "Elect leaders anew.", CARE),
    "top": _one(
        "ottla.admin.commands.top",
        "top",
        "Watch brokers, topics, partitions, groups and what happens, on a whole terminal.",
        CARE,
    ),
    "doctor": _one(
        "ottla.admin.commands.doctor",
        "doctor",
        "Find what is stuck or unsafe in a cluster, and say what mends it.",
        CARE,
    ),
    "verify-replicas": _one(
        "ottla.admin.commands.verify_replicas",
        "verify_replicas",
        "Compare the replicas of topics batch by batch, over the wire.",
        CARE,
    ),
    "users": USERS,
    "cluster": CLUSTER,
    "znode": ZNODE,
    "log-dirs": _one(
        "ottla.admin.commands.log_dirs",
        "log_dirs",
        "Show each broker's log dirs and the replicas that move between them.",
        INSIDE,
    ),
    "logs": _one(
        "ottla.admin.commands.logs",
        "logs",
        "Print segments, indexes, snapshots and checkpoints of Ottla or Kafka, without Java.",
        INSIDE,
    ),
    "merge-state-changes": _one(
        "ottla.admin.commands.state_changes",
        "merge_state_changes",
        "Merge state change logs of several brokers, of Ottla or Kafka, in order of time.",
        INSIDE,
    ),
    "profile": PROFILE,
    "completion": _one(
        "ottla.admin.commands.shell",
        "completion",
        "Print what makes a shell complete commands, options, topics and groups.",
        SETUP,
    ),
    "man": _one(
        "ottla.admin.commands.shell",
        "man",
        "Write man pages, built from the help, into a folder.",
        SETUP,
    ),
    "schema": _one(
        "ottla.admin.commands.shell",
        "schema",
        "Print the JSON schema of what a command prints with --output json.",
        SETUP,
    ),
}
_of_other_rooms: dict[str, Node] = {}


def add(commands: Mapping[str, Node]) -> None:
    """Add commands of other rooms, of which this one knows nothing."""
    _of_other_rooms.update(commands)


def all_commands() -> Group:
    """Return all commands there are."""
    return Group(
        "A replicated log that speaks Apache Kafka's protocol. `ottla up` starts a cluster here.",
        {**COMMANDS, **_of_other_rooms},
    )
