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
	require.NoError(t, guards{Policies: 9, Webhooks: 3}.expect(true))
	require.NoError(t, guards{Webhooks: 3}.expect(false))
	for want, g := range map[string]guards{
		"has no admission policy of the chart":   {Webhooks: 3},
		"has no webhook of the chart":            {Policies: 9},
		"allows everything to " + controllerUser: {Policies: 9, Webhooks: 3, Unbounded: true},
	} {
		require.ErrorContains(t, g.expect(true), want)
	}
	require.ErrorContains(t, guards{Policies: 9, Webhooks: 3}.expect(false), "has 9 admission policies of the chart with --no-policies")
}
