#!/usr/bin/env bash
# All tests, in three processes side by side: those of Spark wait more than they compute. One of the
# three ends long before the others, and goes on with a part of the tests that need no Spark.
# tools/test.sh coverage also reports what they cover, which takes twice as long.
cd "$(dirname "$0")/.." || exit 1
python=.venv/bin/python
# Without a Java the Spark tests are left out, and what they cover cannot be asked for.
floor=
tools/java.sh || floor=--fail-under=0
tools/browser.sh >/dev/null # says what is left out where there is none
watch=
if [ "$1" = coverage ]; then
	rm -f .coverage .coverage.*
	watch="--cov --cov-report= --cov-fail-under=0"
fi

logs=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$logs"' EXIT

# What users see of it, as against what is below: about half of the work.
surface=$(ls -d tests/{cli,estimators,reproduction} tests/test_{benchmarks,docs,examples,peers,plotting,report}*.py)

# run NAME MARKERS ARGUMENTS: the tests with these markers, in place of a shell of their own
run() {
	export COVERAGE_FILE=.coverage.$1
	# shellcheck disable=SC2086
	exec $python -m pytest -m "$2" $watch "${@:3}" >"$logs/$1" 2>&1
}

# finish NAME PROCESS TITLE: show their output as it comes, and wait for their end
finish() {
	echo "$3"
	tail -n +1 -f "$logs/$1" &
	local shown=$!
	wait "$2" || failed=1
	sleep 1 # for the last lines of the log
	kill $shown
	wait $shown 2>/dev/null
}

failed=0
touch "$logs"/{core,spark,cluster,surface} # shown as they come, and some come late
# shellcheck disable=SC2046
run core "not spark" $(printf -- '--ignore=%s ' $surface) &
core=$!
run spark "spark and not cluster" &
spark=$!
(
	trap 'kill $(jobs -p) 2>/dev/null' EXIT
	trap 'exit 143' TERM
	status=0
	run cluster "cluster" &
	wait $! || status=1
	# shellcheck disable=SC2086
	run surface "not spark" $surface &
	wait $! || status=1
	exit $status
) &
last=$!
finish core $core "Tests without Spark; the others run beside them and are shown below."
finish spark $spark "Tests with Spark in one process."
finish surface $last "More tests without Spark."
echo "Tests with Spark clusters."
cat "$logs/cluster"

if [ -n "$watch" ]; then
	$python -m coverage combine --quiet && $python -m coverage report $floor || failed=1
fi
exit $failed
