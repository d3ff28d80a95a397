package timed

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/e2e/site"
)

// byResources are the chapters of a peering that lets each cluster use the other by one
// token, by resources in rome, and that ends by the deletion of what the clusters know of
// each other.
func byResources() []chapter {
	return []chapter{
		{name: "a token for both ways is made", play: (*peering).makeMutualToken},
		{name: "the clusters use each other", play: (*peering).apply, slow: true},
		{name: "rome forgets milan", play: (*peering).forgetMilan, slow: true},
		{name: "milan forgets rome", play: (*peering).forgetRome},
	}
}

func (p *peering) makeMutualToken() error { return p.makeToken("--for=rome", "--both-ways") }

const mutualManifests = `
apiVersion: v1
kind: Secret
metadata: {name: milan, namespace: liqod}
stringData: {token: %q, addressRanges: %q}
---
apiVersion: core.liqo.io/v1beta1
kind: ForeignCluster
metadata: {name: milan}
spec:
  clusterID: milan
  tokenSecretRef: {name: milan}
  outgoingPeeringEnabled: "Yes"
  incomingPeeringEnabled: "Yes"
  request: {resources: {cpu: "10", memory: 20Gi}}
`

// apply connects the clusters, and takes rome's token away when it is used.
func (p *peering) apply() error {
	manifests := fmt.Sprintf(mutualManifests, p.token, p.rome.Options.PodCIDR)
	if err := p.eventually("applying the resources", func(ctx context.Context) error { return p.rome.Apply(ctx, []byte(manifests)) }); err != nil {
		return err
	}
	err := p.eventually("the clusters use each other", func(ctx context.Context) (err error) {
		if p.identity, err = p.romeUses().stands(ctx, "10"); err != nil {
			return err
		}
		p.back, err = p.milanUses().stands(ctx, "")
		return err
	})
	if err != nil {
		return err
	}
	return p.dropToken()
}

func (p *peering) dropToken() error {
	return p.eventually("rome's token goes", func(ctx context.Context) error {
		return p.rome.Client().CoreV1().Secrets(site.Namespace).Delete(ctx, "milan", metav1.DeleteOptions{})
	}, apierrors.IsNotFound)
}

// forgetMilan ends the peering in rome, both ways.
func (p *peering) forgetMilan() error {
	if err := p.forget(p.rome, "milan"); err != nil {
		return err
	}
	return p.powerless(p.rome, p.back)
}

// forgetRome ends in milan what rome has left of it.
func (p *peering) forgetRome() error {
	if err := p.forget(p.milan, "rome"); err != nil {
		return err
	}
	return p.powerless(p.milan, p.identity)
}

// forget deletes what a cluster knows of a peer, and wants nothing of it to be left.
func (p *peering) forget(s *site.Site, peer string) error {
	records := s.Liqod().CoreV1beta1().ForeignClusters()
	err := p.eventually("deleting the ForeignCluster", func(ctx context.Context) error {
		return records.Delete(ctx, peer, metav1.DeleteOptions{})
	}, apierrors.IsNotFound)
	if err != nil {
		return err
	}
	err = p.eventually("the ForeignCluster goes", func(ctx context.Context) error {
		fc, err := records.Get(ctx, peer, metav1.GetOptions{})
		if err == nil {
			err = fmt.Errorf("it is there, deleted at %s, with finalizers %v", fc.DeletionTimestamp, fc.Finalizers)
		}
		return err
	}, apierrors.IsNotFound)
	if err != nil {
		return err
	}
	if s == p.milan {
		if err := p.revokeTokens(); err != nil {
			return err
		}
	}
	return p.nothingLeft(s)
}

// clearResources ends a peering that went wrong, as far as it came.
func (p *peering) clearResources() error {
	return errors.Join(p.dropToken(), p.forget(p.rome, "milan"), p.forget(p.milan, "rome"))
}
