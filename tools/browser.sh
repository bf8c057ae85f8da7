#!/bin/bash
# Makes a Chromium available for the tests of the report page and prints its path; ends with 0 where
# there is one, and with 1 otherwise.
#   tools/browser.sh         installs one where it can, and says so
#   tools/browser.sh check   only looks, and prints nothing else

# The one that BROWSER_PATH names where it is set, else the first on the path that starts.
find_browser() {
	local names=(chromium chromium-browser google-chrome google-chrome-stable) name path
	[ -n "$BROWSER_PATH" ] && names=("$BROWSER_PATH")
	for name in "${names[@]}"; do
		path=$(command -v "$name") && "$path" --version >/dev/null 2>&1 && echo "$path" && return 0
	done
	return 1
}

install() {
	export DEBIAN_FRONTEND=noninteractive
	timeout 300 apt-get -qq update &&
		timeout 600 apt-get -qq install -y --no-install-recommends chromium fonts-dejavu-core
}

find_browser && exit 0
[ "$1" = check ] && exit 1
if [ -n "$BROWSER_PATH" ]; then
	why="BROWSER_PATH is $BROWSER_PATH, which does not start"
elif [ "$(id -u)" != 0 ]; then
	why="there is no Chromium, and only root can install one"
elif ! command -v apt-get >/dev/null; then
	why="there is no Chromium, and no apt-get to install one"
else
	echo "Installing Chromium for the tests of the report page …" >&2
	install >/dev/null 2>&1
	find_browser && exit 0
	why="there is no Chromium, and apt-get could not install one"
fi
echo "The browser tests will be left out: $why." \
	"Install Chromium (Debian: chromium) or set BROWSER_PATH to one." >&2
exit 1
