package roles

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"k8s.io/apimachinery/pkg/labels"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	"github.com/liqod/liqod/kube/client"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/exchange"
	"github.com/liqod/liqod/peering/link"
	"github.com/liqod/liqod/reflect/kinds"
	"github.com/liqod/liqod/shadow/virtualnode"
)

// vkubelet wires one virtual node.
type vkubelet struct {
	env             Env
	home            home
	namespace, name string
	addresses       []netip.Addr
	port            int32

	// tenant, kube and nodes hold the VirtualNode with its NamespaceMap, the Secrets, and the
	// Node. Every replica runs them. Only the active replica holds pods.
	tenant externalversions.SharedInformerFactory
	kube   informers.SharedInformerFactory
	nodes  informers.SharedInformerFactory
	// clusters has the ForeignClusters, and remap translates addresses. Both are nil without
	// the network fabric.
	clusters    externalversions.SharedInformerFactory
	remap       *exchange.Remapper
	ranges      loop.Value[*rangesHere] // nil: they are not known yet
	credentials *link.Credentials
	keeper      *virtualnode.Keeper
	serving     *serve.KubeletCertificate

	events        record.EventRecorder
	eventsDropped *prometheus.CounterVec

	pods      loop.Value[cache.SharedIndexInformer] // of the node; nil in a standby
	addressed loop.Value[addressed]                 // the zero value in a standby

	mu            sync.Mutex
	raw, hardened *rest.Config
	provider      kubernetes.Interface
}

// remoteConfig returns the hardened configuration for the provider. It returns the same one
// until the credentials change, because client-go keeps one transport per configuration.
func (v *vkubelet) remoteConfig() (*rest.Config, error) {
	config, _, err := v.remote()
	return config, err
}

func (v *vkubelet) remote() (*rest.Config, kubernetes.Interface, error) {
	config, err := v.credentials.Current()
	if config == nil {
		return nil, nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.raw != config {
		foreign := v.env.foreign(strings.TrimPrefix(v.namespace, corev1beta1.TenantNamespacePrefix))
		foreign.Own = v.podBytes
		distrusted, err := client.Distrust(config, foreign)
		if err != nil {
			return nil, nil, err
		}
		hardened := client.Harden(distrusted, client.Settings{UserAgent: v.env.UserAgent, Log: v.env.Log})
		provider, err := kubernetes.NewForConfig(client.Core(hardened))
		if err != nil {
			return nil, nil, fmt.Errorf("making a client of the provider: %w", err)
		}
		v.raw, v.hardened, v.provider = config, hardened, provider
	}
	return v.hardened, v.provider, nil
}

// heldPods returns the lister of the node's pods. It returns nil in a standby, and until the
// cache is filled.
func (v *vkubelet) heldPods() corelisters.PodLister {
	pods := v.pods.Get()
	if pods == nil || !pods.HasSynced() {
		return nil
	}
	return corelisters.NewPodLister(pods.GetIndexer())
}

// podBytes returns the size of the node's pods, as far as they are known.
func (v *vkubelet) podBytes() (sum int64) {
	if lister := v.heldPods(); lister != nil {
		for _, pod := range store.Listed(lister.List(labels.Everything())) {
			sum += int64(pod.Size())
		}
	}
	return sum
}

// newStorage returns the provisioner of the volumes of a virtual node, and the informer factory of
// those that it has provisioned.
func (v *vkubelet) newStorage(node kinds.OfNode, provider clients) (*kinds.Claims, informers.SharedInformerFactory) {
	workers := v.env.Config.Reflection.PersistentVolumeClaim.Workers
	if workers == 0 {
		v.env.Log.Info("volumes are not provisioned: reflection.persistentvolumeclaim.workers is 0")
	}
	volumes := stripped(v.home.plain.kube, labelled(corev1beta1.RemoteClusterIDLabel+"="+node.Destination))
	return kinds.NewClaims(kinds.ClaimsConfig{
		OfNode: node, Home: v.home.fenced.kube, Remote: provider.kube, Volumes: volumes.Core().V1().PersistentVolumes(), Workers: workers,
	}), volumes
}
