#!/bin/bash
# Makes a Java available for the Spark tests; ends with 0 where there is one, and with 1 otherwise.
#   tools/java.sh         installs one where it can, and says so
#   tools/java.sh check   only looks, and says nothing
oldest=17 # what Spark 4 asks for

# The Java that Spark would take: that of JAVA_HOME where it is set, else the one on the path.
usable() {
	local java=java version
	[ -n "$JAVA_HOME" ] && java="$JAVA_HOME/bin/java"
	version=$("$java" -version 2>&1) || return 1
	[[ $version =~ version\ \"([0-9]+) ]] && [ "${BASH_REMATCH[1]}" -ge "$oldest" ]
}

# Debian's package, the first that this release has.
install() {
	export DEBIAN_FRONTEND=noninteractive
	timeout 300 apt-get -qq update || return 1
	# Slim images have no directory for manual pages, and the package needs one.
	mkdir -p /usr/share/man/man1
	for version in 17 21 25; do
		timeout 600 apt-get -qq install -y --no-install-recommends \
			"openjdk-$version-jre-headless" && return 0
	done
	return 1
}

usable && exit 0
[ "$1" = check ] && exit 1
if [ -n "$JAVA_HOME" ]; then
	why="JAVA_HOME is $JAVA_HOME, which has no Java $oldest or later"
elif [ "$(id -u)" != 0 ]; then
	why="there is no Java $oldest or later, and only root can install one"
elif ! command -v apt-get >/dev/null; then
	why="there is no Java $oldest or later, and no apt-get to install one"
else
	echo "Installing Java for the Spark tests …"
	install >/dev/null 2>&1
	usable && exit 0
	why="there is no Java $oldest or later, and apt-get could not install one"
fi
echo "The Spark tests will be left out: $why." \
	"Install a JRE (Debian: openjdk-17-jre-headless) or set JAVA_HOME to one."
exit 1
