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
need ip iproute2
need conntrack conntrack
need nsenter util-linux
need hostname hostname
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
	echo "The full tier of the lab needs root and these packages: $packages" >&2
	echo "Install them as root, or use the simulated tier, which needs neither." >&2
	exit 1
fi
if ! command -v apt-get >/dev/null 2>&1; then
	echo "The full tier of the lab needs what Debian calls: $packages" >&2
	echo "There is no apt-get here: install them by this system's own means." >&2
	exit 1
fi
echo "Installing for the lab: $packages"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086
exec apt-get install -y -qq --no-install-recommends $packages
