#!/bin/sh
# Installs what the lab's full tier needs from the distribution. It does nothing, and
# needs no network, when everything is there; without root it names the packages.
set -eu
PATH=$PATH:/usr/sbin:/sbin

packages=
need() { # COMMAND PACKAGE
	command -v "$1" >/dev/null 2>&1 && return
	case " $packages " in *" $2 "*) ;; *) packages="$packages $2" ;; esac
}
need containerd containerd
need ctr containerd
need runc runc
need nft nftables
need iptables-save iptables
need ipset ipset
need ip iproute2
need conntrack conntrack
need nsenter util-linux
need unshare util-linux
need hostname hostname
# The page of liqod dashboard is tested in a browser. Only CI insists on it.
[ "${CI:-}" != true ] || command -v chromium-browser >/dev/null 2>&1 || need chromium chromium
# make conformance makes its images of Debian packages.
[ -z "${CONFORMANCE:-}" ] || need debootstrap debootstrap
cni=missing
for dir in /usr/lib/cni /opt/cni/bin /usr/libexec/cni; do
	[ -x "$dir/bridge" ] && [ -x "$dir/host-local" ] && [ -x "$dir/loopback" ] && cni=$dir
done
[ "$cni" != missing ] || packages="$packages containernetworking-plugins"

packages=${packages# }
if [ -z "$packages" ]; then
	exit 0
fi
if [ "$(id -u)" != 0 ]; then
	echo "The full tier of the lab needs root, and these packages, which are missing here: $packages" >&2
	echo "Become root and run it again: it then installs them. The simulated tier needs neither." >&2
	exit 2
fi
if ! command -v apt-get >/dev/null 2>&1; then
	echo "The full tier of the lab needs what Debian calls: $packages" >&2
	echo "There is no apt-get here: install them by this system's own means." >&2
	exit 2
fi
echo "Installing for the lab: $packages"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# shellcheck disable=SC2086
if ! { apt-get update -q && apt-get install -y -q --no-install-recommends $packages; } >"$log" 2>&1; then
	cat "$log" >&2
	echo "These packages could not be installed: $packages" >&2
	exit 2
fi
