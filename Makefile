# The two commands for a newcomer: `make demo` and `make test`. Both set everything up first.
.PHONY: demo test check quick setup docs package bench-quick bench-failover bench-crash kill-proof secured-kill-proof crash-proof controller-kill-proof transaction-proof lake-proof replay-proof sink-proof fault-proof hostile-proof command-line-proof fuzz auth-fuzz clean help

help:
	@echo "make demo         336,776 flights through three brokers and Spark into Delta, all of them killed, counted by DuckDB"
	@echo "make test         everything CI runs: lint, types, contracts, tests, real clients, demo --fast"
	@echo "make check        the quick part of it: no Java, no processes"
	@echo "make quick ROOM=controller   the unit tests of one room of src/ottla"
	@echo "make docs         the documents as a site in build/site, links and anchors checked"
	@echo "make package      wheel and sdist in dist, checked, installed and used on every Python there is"
	@echo "make bench-quick  side by side with Apache Kafka 3.9"
	@echo "make bench-failover  a controller takes over up to 100,000 partitions"
	@echo "make bench-crash  kill -9 to led again, beside Apache Kafka 3.9 and 4.1"
	@echo "make kill-proof   kill -9 during acks=all produce, twenty times in a row"
	@echo "make secured-kill-proof   the same with a broker of Kafka 3.9 among ours, over SASL_SSL with ACLs"
	@echo "make crash-proof  who died is noticed at once, who lives never is taken for dead"
	@echo "make controller-kill-proof   kill -9 of the controller amid reassignments and deletions"
	@echo "make transaction-proof   consume, transform, produce exactly once through kills"
	@echo "make lake-proof   drivers and leaders killed amid the lake job's batches"
	@echo "make replay-proof drivers and leaders killed amid the replay job's transactions"
	@echo "make sink-proof   drivers, an executor and brokers killed while Spark writes a topic"
	@echo "make fuzz         an hour of damaged requests, batches, answers and files, guided by coverage"
	@echo "make auth-fuzz    an hour of frames in any order, whole, damaged and replayed, at SASL's states"
	@echo "make hostile-proof  bombs, trickles, idle and greedy clients against a broker with few resources"
	@echo "make command-line-proof  wrong words, names, servers, folders, disks and Ctrl-C: one clear line each"
	@echo "make fault-proof  power lost, disks broken, links cut, brokers stopped, clocks wrong (as root)"

demo: setup
	scripts/run ottla demo

test: setup
	scripts/run scripts/test

check: setup
	scripts/run scripts/test quick

quick: setup
	scripts/run scripts/test quick $(ROOM)

docs: setup
	scripts/run scripts/docs

package: setup
	scripts/run scripts/package

setup:
	@scripts/setup

bench-quick: setup
	scripts/run scripts/kafka-jars
	scripts/run python benchmarks/quick.py

bench-failover: setup
	scripts/run scripts/kafka-jars
	scripts/run python benchmarks/failover.py

bench-crash: setup
	scripts/run scripts/kafka-jars
	scripts/run scripts/kafka-jars 4.1.0
	scripts/run python benchmarks/crash.py

kill-proof: setup
	scripts/run python tests/proofs/kill_proof.py --rounds 20

secured-kill-proof: setup
	scripts/run scripts/kafka-jars
	scripts/run python tests/proofs/secured_kill_proof.py --rounds 8

crash-proof: setup
	scripts/run python tests/proofs/crash_proof.py --kills 50 --minutes 60

controller-kill-proof: setup
	scripts/run python tests/proofs/controller_kill_proof.py --rounds 10

transaction-proof: setup
	scripts/run python tests/proofs/transaction_proof.py --rounds 16

lake-proof: setup
	scripts/run python tests/proofs/lake_proof.py --rounds 12
	scripts/run python tests/proofs/lake_proof.py --rounds 13 --format iceberg

replay-proof: setup
	scripts/run python tests/proofs/replay_proof.py --rounds 8

sink-proof: setup
	scripts/run scripts/kafka-jars 4.4.0
	scripts/run python tests/proofs/sink_proof.py --records 300000
	scripts/run python tests/proofs/sink_proof.py --records 300000 --kafka 4.4

fault-proof: setup
	scripts/run python tests/proofs/fault_proof.py

hostile-proof: setup
	scripts/run python tests/proofs/hostile_proof.py

command-line-proof: setup
	scripts/run scripts/kafka-jars
	scripts/run python tests/proofs/command_line_proof.py

fuzz: setup
	scripts/run scripts/fuzz --minutes 60

auth-fuzz: setup
	scripts/run python tests/fuzz/auth_fuzz.py --minutes 60

clean:
	rm -rf .venv build dist src/*.egg-info
