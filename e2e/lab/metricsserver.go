package lab

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// metricsPatience is how long it waits for the metrics API, after the build.
const metricsPatience = 3 * time.Minute

// MetricsServerImage is the name of the image with e2e/tools/metrics-server.
const MetricsServerImage = "lab.local/metrics-server:1"

//go:embed metrics-server.yaml
var metricsServerManifests string

// ApplyMetricsServer gives a cluster of this tier its metrics API and returns when it
// answers: nothing is measured then yet. The first call on a machine builds metrics-server.
func (f *Full) ApplyMetricsServer(ctx context.Context, c *Cluster) error {
	archive, err := buildToolImage(ctx, f.lab, toolImage{tool: "metrics-server", name: MetricsServerImage})
	if err != nil {
		return err
	}
	if err := f.LoadImage(ctx, c, archive); err != nil {
		return err
	}
	if err := c.Apply(ctx, fmt.Appendf(nil, metricsServerManifests, MetricsServerImage)); err != nil {
		return err
	}
	err = Within(ctx, metricsPatience, func(ctx context.Context) error {
		d, err := c.Client().AppsV1().Deployments(metav1.NamespaceSystem).Get(ctx, "metrics-server", metav1.GetOptions{})
		if err := Wrong(err, d.Status.AvailableReplicas == 0, "metrics-server is not available: %+v", d.Status.Conditions); err != nil {
			return err
		}
		_, err = c.Client().Discovery().ServerResourcesForGroupVersion("metrics.k8s.io/v1beta1")
		return err
	})
	if err != nil {
		return fmt.Errorf("waiting for the metrics API of cluster %s: %w", c.Name, err)
	}
	return nil
}
