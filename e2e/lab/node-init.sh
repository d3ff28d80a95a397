#!/bin/sh
# First process of a lab node, in mount, process, host name, IPC and cgroup namespaces
# of its own. When it is killed, everything on the node is gone.
set -eu
# /proc is still the machine's: its number there, for whoever wants to enter or kill.
read -r pid _ </proc/self/stat
hostname "$NODE_NAME"
mount -t proc proc /proc
# The kubelet sets sysctls that are not namespaced. It gets files of its own instead.
for sysctl in vm/overcommit_memory:1 vm/panic_on_oom:0 kernel/panic:10 kernel/panic_on_oops:1 kernel/keys/root_maxkeys:1000000 kernel/keys/root_maxbytes:25000000; do
	file=${sysctl%:*}
	[ -e "/proc/sys/$file" ] || continue
	mkdir -p "$NODE_DIR/sysctl/${file%/*}"
	echo "${sysctl#*:}" >"$NODE_DIR/sysctl/$file"
	mount --bind "$NODE_DIR/sysctl/$file" "/proc/sys/$file"
done
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/netns /run/containerd /run/lock
mount -t tmpfs -o mode=755 tmpfs /var/lib
mkdir -p /var/lib/kubelet /var/lib/cni /var/lib/containerd /var/lib/rancher/k3s/storage
# overlayfs needs a real file system below it.
mount --bind "$NODE_DIR/containerd" /var/lib/containerd
# Volumes outlive the node.
mount --bind "$NODE_DIR/volumes" /var/lib/rancher/k3s/storage
mount -t tmpfs -o mode=755 tmpfs /var/log
mkdir -p /var/log/pods /var/log/containers
if [ -n "$CGROUP_V1" ]; then
	mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
	for controllers in $CGROUP_V1; do
		dir=/sys/fs/cgroup/${controllers#none,name=}
		mkdir "$dir"
		mount -t cgroup -o "$controllers" cgroup "$dir"
		case $controllers in
		none,*) ;;
		*,*) for one in $(echo "$controllers" | tr , ' '); do ln -s "$controllers" "/sys/fs/cgroup/$one"; done ;;
		esac
	done
else
	# A cgroup with processes cannot have children with limits: they move to a leaf.
	mount -t cgroup2 cgroup2 /sys/fs/cgroup
	mkdir -p /sys/fs/cgroup/init
	while read -r process; do
		echo "$process" >/sys/fs/cgroup/init/cgroup.procs 2>/dev/null || :
	done </sys/fs/cgroup/cgroup.procs
	for one in $(cat /sys/fs/cgroup/cgroup.controllers); do
		echo "+$one" >/sys/fs/cgroup/cgroup.subtree_control || echo "cgroup controller $one is not available on this node"
	done
fi
mount --make-rshared /
echo 1 >/proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
echo "$pid" >"$NODE_DIR/init.pid.new"
mv "$NODE_DIR/init.pid.new" "$NODE_DIR/init.pid"

# keep NAME COMMAND...: run it for ever, as a service manager does.
keep() {
	log=$NODE_DIR/$1.log
	shift
	while :; do
		"$@" >>"$log" 2>&1 || echo "ended with $?" >>"$log"
		sleep 1
	done
}

keep containerd containerd --config "$NODE_DIR/containerd.toml" --log-level warn &
tries=0
until ctr version >/dev/null 2>&1; do
	tries=$((tries + 1))
	[ $tries -lt 600 ] || { echo "containerd does not answer: see $NODE_DIR/containerd.log"; exit 1; }
	sleep 0.05
done
ctr -n k8s.io images import "$TEST_IMAGE"
keep kubelet "$KUBELAB" kubelet --config "$NODE_DIR/kubelet.yaml" --kubeconfig "$NODE_KUBECONFIG" --hostname-override "$NODE_NAME" \
	--node-ip "$NODE_ADDRESS" --node-labels "$NODE_LABELS" --root-dir /var/lib/kubelet --cert-dir /var/lib/kubelet/pki &
keep kube-proxy "$KUBELAB" proxy --config "$NODE_DIR/kube-proxy.yaml" &
# kube-router and flannel end until the kubelet has made the Node, whose name they read from
# NODE_NAME, and the Node has its podCIDR.
#
# kube-router opens the node ports of its own proxy on the node itself. kube-proxy needs no such
# ports, and servers of the node may listen there: 1 and 2 stand for none.
kube_router() {
	keep kube-router "$KUBE_ROUTER" --run-firewall=true --run-service-proxy=false --kubeconfig "$NETWORK_KUBECONFIG" \
		--service-cluster-ip-range "$SERVICE_RANGE" --service-node-port-range 1:2 "$@"
}
case $KUBE_ROUTER_MODE in
firewall) kube_router --run-router=false & ;;
# Nodes are on one network, so that there is no need of its tunnels. The lab writes the configuration of the pods' devices.
router) kube_router --run-router=true --enable-overlay=false --enable-cni=false --auto-mtu=false --routes-sync-period=10s --injected-routes-sync-period=10s & ;;
esac
if [ -n "$FLANNEL" ]; then
	keep flannel "$FLANNEL" --kubeconfig "$NETWORK_KUBECONFIG" --network "$FLANNEL_CONFIG" &
fi
wait
