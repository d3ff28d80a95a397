package virtualnode

import (
	"errors"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/liqod/liqod/api/generated/clientset/versioned"
	offloadinginformers "github.com/liqod/liqod/api/generated/informers/externalversions/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
)

// Config configures a Lifecycle. Every field is needed unless it says otherwise.
type Config struct {
	// Kube and Liqo write, and read where the caches may be stale.
	Kube kubernetes.Interface
	Liqo versioned.Interface

	// VirtualNodes and NamespaceMaps of all namespaces, and all Nodes.
	VirtualNodes  offloadinginformers.VirtualNodeInformer
	NamespaceMaps offloadinginformers.NamespaceMapInformer
	Nodes         coreinformers.NodeInformer
	// Deployments, ServiceAccounts, RoleBindings and ClusterRoleBindings of all
	// namespaces. The informers may be restricted to objects that carry the label
	// liqo.io/virtual-node.
	Deployments         appsinformers.DeploymentInformer
	ServiceAccounts     coreinformers.ServiceAccountInformer
	RoleBindings        rbacinformers.RoleBindingInformer
	ClusterRoleBindings rbacinformers.ClusterRoleBindingInformer

	// VirtualKubelet has what a VirtualNode's spec.virtualKubelet leaves out.
	VirtualKubelet VirtualKubeletDefaults
	// NotReflected has the keys that the vkubelets leave here, whatever is offloaded. It is
	// written into each VirtualNode's status, which they follow.
	NotReflected offloadingv1beta1.NotReflected
	// Drain bounds the deletion of a VirtualNode.
	Drain DrainConfig

	// Events receives what people should see on VirtualNodes.
	Events record.EventRecorder
	// Log receives the errors of the loop.
	Log *zap.Logger
	// Observer may be nil.
	Observer loop.Observer
	// Clock is the real one when nil.
	Clock clock.PassiveClock
}

// VirtualKubeletDefaults describes the vkubelets that the controller deploys.
type VirtualKubeletDefaults struct {
	// Image of the vkubelet, where the VirtualNode names none.
	Image string
	// ImagePullPolicy and ImagePullSecrets may be empty.
	ImagePullPolicy  corev1.PullPolicy
	ImagePullSecrets []corev1.LocalObjectReference
	// Replicas, where the VirtualNode gives no number.
	Replicas int32
	// Resources of the container, where the VirtualNode gives none.
	Resources corev1.ResourceRequirements
	// Args are added to every vkubelet's command line, before the VirtualNode's own: this
	// cluster's id, the log level and the like.
	Args []string
}

// DrainConfig bounds the deletion of a VirtualNode. Zero values take the defaults.
type DrainConfig struct {
	// Timeout, counted from the VirtualNode's deletion, is how long pods are asked to leave
	// through the Eviction API. After it they are deleted. Default 5 minutes.
	Timeout time.Duration
	// ForceAfter, counted from Timeout, is how long deleted pods may take to end. After it
	// they are removed without waiting for the provider. It also bounds the wait for the
	// vkubelet's own pods. Default 2 minutes.
	ForceAfter time.Duration
	// Poll is the time between two looks at the pods that are left. Default 2 seconds.
	Poll time.Duration
}

const (
	defaultDrainTimeout = 5 * time.Minute
	defaultForceAfter   = 2 * time.Minute
	defaultPoll         = 2 * time.Second
)

func (d DrainConfig) withDefaults() DrainConfig {
	if d.Timeout <= 0 {
		d.Timeout = defaultDrainTimeout
	}
	if d.ForceAfter <= 0 {
		d.ForceAfter = defaultForceAfter
	}
	if d.Poll <= 0 {
		d.Poll = defaultPoll
	}
	return d
}

var errNoImage = errors.New("virtual kubelet image is empty: name the image that the vkubelets run")

func (c Config) validate() error {
	if c.VirtualKubelet.Image == "" {
		return errNoImage
	}
	return nil
}
