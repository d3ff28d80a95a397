package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
)

const (
	taintKey  = "virtual-node.liqo.io/not-allowed" // tolerated by the pods that are measured
	heartbeat = 10 * time.Second

	firstRetry = 5 * time.Millisecond
	lastRetry  = time.Second
)

type mirrorOptions struct {
	home, away                   string // kubeconfigs
	homeNamespace, awayNamespace string
	node                         string
	workers                      int
}

func parseMirror(args []string) (mirrorOptions, error) {
	var o mirrorOptions
	flags := flag.NewFlagSet(mirrorCommand, flag.ContinueOnError)
	flags.StringVar(&o.home, "home", "", "kubeconfig of the cluster that has the node")
	flags.StringVar(&o.away, "away", "", "kubeconfig of the cluster that runs the pods")
	flags.StringVar(&o.homeNamespace, "home-namespace", "", "namespace of the pods at home")
	flags.StringVar(&o.awayNamespace, "away-namespace", "", "namespace of the pods away")
	flags.StringVar(&o.node, "node", "mirror", "name of the node")
	flags.IntVar(&o.workers, "workers", 20, "pods worked on at once")
	err := flags.Parse(args)
	return o, err
}

// runMirror is what offloading is measured beside: the least that lets the pods of
// one node run in another cluster. It copies their spec there and their status back, and
// knows nothing of identities, lost answers, outages or other people's pods. It is left
// as it is, so that what is measured beside it stays comparable.
func runMirror(ctx context.Context, args []string) error {
	o, err := parseMirror(args)
	if err != nil {
		return err
	}
	home, err := mirrorClient(o.home)
	if err != nil {
		return err
	}
	away, err := mirrorClient(o.away)
	if err != nil {
		return err
	}
	m := newMirror(home, away, o)
	if err := m.start(ctx); err != nil {
		return err
	}
	if err := createNode(ctx, home, o.node); err != nil {
		return err
	}
	go m.work(ctx, o.workers)
	return keepReady(ctx, home, o.node)
}

func createNode(ctx context.Context, home kubernetes.Interface, name string) error {
	now := metav1.Now()
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1000"), corev1.ResourceMemory: resource.MustParse("1000Gi"), corev1.ResourcePods: resource.MustParse("10000"),
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: taintKey, Value: "true", Effect: corev1.TaintEffectNoExecute}}},
		Status: corev1.NodeStatus{Capacity: room, Allocatable: room, Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Mirror", LastHeartbeatTime: now, LastTransitionTime: now,
		}}},
	}
	if _, err := home.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the node: %w", err)
	}
	return nil
}

// keepReady renews the node's lease until ctx ends.
func keepReady(ctx context.Context, home kubernetes.Interface, name string) error {
	leases := home.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease, err := leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &name, LeaseDurationSeconds: ptr.To(int32(4 * heartbeat / time.Second)), RenewTime: ptr.To(metav1.NowMicro()),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating the node's lease: %w", err)
	}
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
		next, err := leases.Update(ctx, lease, metav1.UpdateOptions{})
		if err != nil {
			fmt.Fprintln(os.Stderr, "mirror: renewing the node's lease:", err)
			continue
		}
		lease = next
	}
}

// mirrorClient speaks protobuf and is not limited.
func mirrorClient(kubeconfig string) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading a kubeconfig: %w", err)
	}
	config.QPS, config.UserAgent = -1, mirrorName
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf
	return kubernetes.NewForConfig(config)
}

// lean drops what the mirror does not read.
func lean(obj any) (any, error) {
	if o, err := meta.Accessor(obj); err == nil {
		o.SetManagedFields(nil)
	}
	return obj, nil
}
