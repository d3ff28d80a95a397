package link

import (
	"fmt"

	"k8s.io/client-go/kubernetes"

	"github.com/liqod/liqod/api/generated/clientset/versioned"
	"github.com/liqod/liqod/kube/client"
)

// Connector returns a function that creates the clients of a peer from a kubeconfig. Each
// peer has its own limit for writes. The gate of settings holds for all but heartbeats. The
// function does not connect to the peer.
func Connector(settings client.Settings) func(kubeconfig []byte) (Clients, error) {
	return func(kubeconfig []byte) (Clients, error) {
		cfg, err := client.FromKubeconfig(kubeconfig)
		if err != nil {
			return Clients{}, err
		}
		way := client.NewWay(cfg)
		cfg = client.Harden(way.Config(), settings)
		kube, err := kubernetes.NewForConfig(client.Core(cfg))
		if err != nil {
			return Clients{}, fmt.Errorf("making a client for %s: %w", cfg.Host, err)
		}
		liqo, err := versioned.NewForConfig(cfg)
		if err != nil {
			return Clients{}, fmt.Errorf("making a client for %s: %w", cfg.Host, err)
		}
		free := settings
		free.Gate = nil
		beats, err := kubernetes.NewForConfig(client.Core(client.Harden(way.Config(), free)))
		if err != nil {
			return Clients{}, fmt.Errorf("making a client for %s: %w", cfg.Host, err)
		}
		renew := func(kubeconfig []byte) bool {
			cfg, err := client.FromKubeconfig(kubeconfig)
			return err == nil && way.Renew(cfg)
		}
		return Clients{Host: cfg.Host, Kube: kube, Liqo: liqo, Beats: beats, Ready: Readyz(kube), Renew: renew}, nil
	}
}
