package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestGuardsOf(t *testing.T) {
	c := fake.NewClientset(
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "liqod-peer"}},
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "other"}},
		&admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "liqod"}, Webhooks: make([]admissionv1.MutatingWebhook, 2)},
		&admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Webhooks: make([]admissionv1.MutatingWebhook, 2)},
		&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "liqod"}, Webhooks: make([]admissionv1.ValidatingWebhook, 1)},
	)
	allowed := false
	c.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		require.Equal(t, controllerUser, review.Spec.User)
		review.Status.Allowed = allowed
		return true, review, nil
	})
	g, err := guardsOf(t.Context(), "rome", c)
	require.NoError(t, err)
	require.Equal(t, guards{Cluster: "rome", Policies: 1, Webhooks: 3}, g)
	allowed = true
	g, err = guardsOf(t.Context(), "rome", c)
	require.NoError(t, err)
	require.True(t, g.Unbounded)
}

func TestGuardsExpect(t *testing.T) {
	for name, test := range map[string]struct {
		g        guards
		policies bool
		want     string
	}{
		"as shipped":       {g: guards{Policies: 9, Webhooks: 3}, policies: true},
		"without":          {g: guards{Webhooks: 3}},
		"none":             {g: guards{Cluster: "rome", Webhooks: 3}, policies: true, want: "rome has no admission policy of the chart"},
		"still there":      {g: guards{Cluster: "rome", Policies: 9, Webhooks: 3}, want: "rome has 9 admission policies of the chart with --no-policies"},
		"no webhook":       {g: guards{Cluster: "rome", Policies: 9}, policies: true, want: "rome has no webhook of the chart"},
		"unbounded rights": {g: guards{Cluster: "rome", Policies: 9, Webhooks: 3, Unbounded: true}, policies: true, want: "rome allows everything to " + controllerUser},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.g.expect(test.policies)
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.want)
		})
	}
}
