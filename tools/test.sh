#!/usr/bin/env bash
# All tests, in three processes side by side: those of Spark wait more than they compute.
# tools/test.sh coverage also tells what they cover, which takes twice as long.
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

# start NAME MARKERS: the tests with these markers, in the background
start() {
	# shellcheck disable=SC2086
	COVERAGE_FILE=.coverage.$1 $python -m pytest -m "$2" $watch >"$logs/$1" 2>&1 &
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
start plain "not spark"
plain=$!
start spark "spark and not cluster"
spark=$!
start cluster "cluster"
cluster=$!
finish plain $plain "Tests without Spark; the others run beside them and are shown below."
finish spark $spark "Tests with Spark in one process."
finish cluster $cluster "Tests with Spark clusters."

if [ -n "$watch" ]; then
	$python -m coverage combine --quiet && $python -m coverage report $floor || failed=1
fi
exit $failed
