package link

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
)

func TestWanted(t *testing.T) {
	t.Parallel()
	labelled := NewPolicy(string(PolicyLabelled), "tier=partner")
	never, discovered, always := Policy{Mode: PolicyNever}, Policy{Mode: PolicyDiscovered}, Policy{Mode: PolicyAlways}
	found := map[string]string{corev1beta1.DiscoveredLabel: corev1beta1.DiscoveredByDNS}
	partner := map[string]string{"tier": "partner"}
	for name, tc := range map[string]struct {
		say      corev1beta1.PeeringEnabled
		labels   map[string]string
		policy   Policy
		deleting bool
		want     bool
	}{
		"Yes, against the policy":       {say: corev1beta1.PeeringYes, policy: never, want: true},
		"Yes, being deleted":            {say: corev1beta1.PeeringYes, policy: always, deleting: true},
		"No, against the policy":        {say: corev1beta1.PeeringNo, policy: always, labels: found},
		"Auto, never":                   {say: corev1beta1.PeeringAuto, policy: never, labels: found},
		"Auto, no policy":               {say: corev1beta1.PeeringAuto, labels: found},
		"Auto, always":                  {say: corev1beta1.PeeringAuto, policy: always, want: true},
		"Auto, always, being deleted":   {say: corev1beta1.PeeringAuto, policy: always, deleting: true},
		"empty is Auto":                 {policy: always, want: true},
		"Auto, discovered":              {say: corev1beta1.PeeringAuto, policy: discovered, labels: found, want: true},
		"Auto, not discovered":          {say: corev1beta1.PeeringAuto, policy: discovered, labels: partner},
		"Auto, labelled":                {say: corev1beta1.PeeringAuto, policy: labelled, labels: partner, want: true},
		"Auto, labelled otherwise":      {say: corev1beta1.PeeringAuto, policy: labelled, labels: found},
		"Auto, labelled, no selector":   {say: corev1beta1.PeeringAuto, policy: Policy{Mode: PolicyLabelled}, labels: partner},
		"Auto, labelled, an empty one":  {say: corev1beta1.PeeringAuto, policy: NewPolicy("Labelled", " "), labels: partner},
		"Auto, labelled, a bad one":     {say: corev1beta1.PeeringAuto, policy: NewPolicy("Labelled", "a in ("), labels: partner},
		"Auto, a policy of another age": {say: corev1beta1.PeeringAuto, policy: Policy{Mode: "Sometimes"}, labels: found},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fc := &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Labels: tc.labels}}
			if tc.deleting {
				fc.DeletionTimestamp = &metav1.Time{}
			}
			out, in := fc.DeepCopy(), fc.DeepCopy()
			out.Spec.OutgoingPeeringEnabled, in.Spec.IncomingPeeringEnabled = tc.say, tc.say
			require.Equal(t, tc.want, OutgoingWanted(out, tc.policy))
			require.Equal(t, tc.want, IncomingWanted(in, tc.policy))
			offered := tc.want && (tc.policy.Mode != PolicyAlways || tc.say == corev1beta1.PeeringYes)
			require.Equal(t, offered, IncomingOffered(in, tc.policy))
		})
	}
}
