package link

import (
	"errors"
	"fmt"

	"k8s.io/client-go/kubernetes"

	"github.com/liqod/liqod/api/generated/clientset/versioned"
	"github.com/liqod/liqod/kube/client"
)

// Connector returns a function that creates the clients of a peer from its cluster id and
// a kubeconfig. Each peer has its own limit for writes. The gate of settings holds for all
// but heartbeats. foreign describes the peer's API server. The function does not connect to
// the peer.
func Connector(settings client.Settings, foreign func(id string) client.Foreign) func(id string, kubeconfig []byte) (Clients, error) {
	return func(id string, kubeconfig []byte) (Clients, error) {
		cfg, err := client.FromKubeconfig(kubeconfig)
		if err != nil {
			return Clients{}, err
		}
		way := client.NewWay(cfg)
		distrusted, err := client.Distrust(way.Config(), foreign(id))
		if err != nil {
			return Clients{}, err
		}
		cfg = client.Harden(distrusted, settings)
		kube, kubeErr := kubernetes.NewForConfig(client.Core(cfg))
		liqo, liqoErr := versioned.NewForConfig(cfg)
		free := settings
		free.Gate = nil
		beats, beatsErr := kubernetes.NewForConfig(client.Core(client.Harden(distrusted, free)))
		if err := errors.Join(kubeErr, liqoErr, beatsErr); err != nil {
			return Clients{}, fmt.Errorf("making a client for %s: %w", cfg.Host, err)
		}
		renew := func(kubeconfig []byte) bool {
			cfg, err := client.FromKubeconfig(kubeconfig)
			return err == nil && way.Renew(cfg)
		}
		return Clients{Host: cfg.Host, Kube: kube, Liqo: liqo, Beats: beats, Ready: Readyz(kube), Renew: renew}, nil
	}
}
