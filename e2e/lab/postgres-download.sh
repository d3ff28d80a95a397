# Usage: sh -c THIS sh DIRECTORY PACKAGE...
# Unpacks packages, and all that they depend on, into DIRECTORY/root. apt-get has a state of its
# own, in which nothing is installed: it finds every dependency, and leaves the machine's alone.
set -eu
cd "$1"
shift
rm -rf apt part
mkdir -p apt/lists/partial apt/archives/partial part
: >apt/status
get() {
	apt-get -q -o Dir::State="$PWD/apt" -o Dir::State::status="$PWD/apt/status" -o Dir::Cache="$PWD/apt" -o APT::Sandbox::User=root "$@"
}
get update
get install -y --download-only --no-install-recommends "$@"
for package in apt/archives/*.deb; do
	dpkg-deb -x "$package" part
done
mv part root
rm -rf apt
