package timed

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

// byResources are the steps of a peering in which each cluster uses the other one, by one token.
// Resources in rome make it, and the deletion of both ForeignClusters ends it.
func byResources() []step {
	return []step{
		{name: "a token for both ways is made", run: func(p *peering) { p.makeToken("--for=rome", "--both-ways") }},
		{name: "the clusters use each other", run: (*peering).createResources, slow: true},
		{name: "rome deletes the ForeignCluster milan", run: (*peering).deleteMilan, slow: true},
		{name: "milan deletes the ForeignCluster rome", run: (*peering).deleteRome},
	}
}

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

// createResources connects the clusters, and deletes rome's token when it is used.
func (p *peering) createResources() {
	manifests := fmt.Sprintf(mutualManifests, p.token, p.Rome.Options.PodCIDR)
	p.eventually("applying the resources", func(ctx context.Context) error { return p.Rome.Apply(ctx, []byte(manifests)) })
	p.eventually("the clusters use each other", func(ctx context.Context) (err error) {
		if p.identity, err = p.romeUses().established(ctx, "10"); err != nil {
			return err
		}
		p.back, err = p.milanUses().established(ctx, "")
		return err
	})
	p.deleteToken()
}

func (p *peering) deleteToken() {
	p.eventually("rome's token is deleted", lab.Deletes(p.Rome.Client().CoreV1().Secrets(site.Namespace), "milan"), apierrors.IsNotFound)
}

// deleteMilan ends the peering in rome, both ways.
func (p *peering) deleteMilan() {
	p.deletePeer(p.Rome, "milan")
	p.powerless(p.Rome, p.back)
}

// deleteRome ends the rest of the peering in milan.
func (p *peering) deleteRome() {
	p.deletePeer(p.Milan, "rome")
	p.powerless(p.Milan, p.identity)
}

// deletePeer deletes the ForeignCluster of a peer, and waits until nothing of the peering is left.
func (p *peering) deletePeer(s *site.Site, peer string) {
	p.t.Helper()
	peers := s.Liqod().CoreV1beta1().ForeignClusters()
	p.eventually("deleting the ForeignCluster", lab.Deletes(peers, peer), apierrors.IsNotFound)
	p.eventually("the ForeignCluster is deleted", func(ctx context.Context) error {
		fc, err := peers.Get(ctx, peer, metav1.GetOptions{})
		if err == nil {
			err = fmt.Errorf("it exists, deleted at %s, with finalizers %v", fc.DeletionTimestamp, fc.Finalizers)
		}
		return err
	}, apierrors.IsNotFound)
	if s == p.Milan {
		p.revokeTokens()
	}
	p.nothingLeft(s)
}

// deleteResources ends the peering of a run that failed.
func (p *peering) deleteResources() {
	p.deleteToken()
	p.deletePeer(p.Rome, "milan")
	p.deletePeer(p.Milan, "rome")
}
