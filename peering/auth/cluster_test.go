package auth

import (
	"context"
	"encoding/pem"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	liqodfake "github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/peering/trust"
)

func clusterOn(core *fake.Clientset, change ...func(*ClusterConfig)) *Cluster {
	cfg := ClusterConfig{Namespace: "liqod", Kube: core, Liqo: liqodfake.NewSimpleClientset(), Host: "https://10.96.0.1:443",
		Events: record.NewFakeRecorder(10), Clock: clock.RealClock{}, Log: zap.NewNop()}
	for _, f := range change {
		f(&cfg)
	}
	return NewCluster(cfg)
}

func configMap(namespace, name, key, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string]string{key: value}}
}

// answers makes the fake's signer handle each certificate request when it is read.
func answers(core *fake.Clientset, answer func(*certificatesv1.CertificateSigningRequest) error) {
	core.PrependReactor("get", "certificatesigningrequests", func(a k8stesting.Action) (bool, runtime.Object, error) {
		obj, err := core.Tracker().Get(a.GetResource(), "", a.(k8stesting.GetAction).GetName())
		if err != nil {
			return true, nil, err
		}
		csr := obj.(*certificatesv1.CertificateSigningRequest).DeepCopy()
		return true, csr, answer(csr)
	})
}

func checked(t *testing.T) trust.CSR {
	t.Helper()
	csr, err := trust.CheckCSR(newClient(t, rome, romeUID).csr(t))
	require.NoError(t, err)
	return csr
}

func TestKubeSigns(t *testing.T) {
	core := fake.NewClientset()
	looks := 0
	answers(core, func(csr *certificatesv1.CertificateSigningRequest) error {
		require.Equal(t, "kubernetes.io/kube-apiserver-client", csr.Spec.SignerName)
		require.Equal(t, []certificatesv1.KeyUsage{"digital signature", "client auth"}, csr.Spec.Usages)
		require.EqualValues(t, 3600, *csr.Spec.ExpirationSeconds)
		require.Len(t, csr.Status.Conditions, 1)
		require.Equal(t, certificatesv1.CertificateApproved, csr.Status.Conditions[0].Type)
		if looks++; looks > 2 {
			csr.Status.Certificate = []byte("chain")
		}
		return nil
	})
	csr := checked(t)
	name := "liqod-peer-rome-" + csr.Serial
	sign := func() {
		chain, err := clusterOn(core).Sign(t.Context(), rome, csr, time.Hour)
		require.NoError(t, err)
		require.Equal(t, "chain", chain)
	}
	sign()
	made := []string{"create certificatesigningrequests " + name, "update certificatesigningrequests/approval " + name, "delete certificatesigningrequests " + name}
	kubetest.RequireWrites(t, core, made...)

	kubetest.Create(t, core.CertificatesV1().CertificateSigningRequests(), &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "left"}, Status: certificatesv1.CertificateSigningRequestStatus{Certificate: []byte("old")}})
	core.ClearActions()
	looks = 0
	answered := false
	core.PrependReactor("get", "certificatesigningrequests", func(k8stesting.Action) (bool, runtime.Object, error) {
		if answered {
			return false, nil, nil
		}
		answered = true
		return true, &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "left"}}, nil
	})
	sign()
	kubetest.RequireWrites(t, core, append([]string{made[0], made[2]}, made...)...)
}

func TestKubeIsNotSigned(t *testing.T) {
	const requests = "certificatesigningrequests"
	resource := schema.GroupResource{Resource: requests}
	refusing := func(verb, sub string, err error) func(*fake.Clientset) {
		return func(core *fake.Clientset) {
			core.PrependReactor(verb, requests, func(a k8stesting.Action) (bool, runtime.Object, error) {
				return a.GetSubresource() == sub, nil, err
			})
		}
	}
	answered := func(change func(*certificatesv1.CertificateSigningRequest)) func(*fake.Clientset) {
		return func(core *fake.Clientset) {
			answers(core, func(csr *certificatesv1.CertificateSigningRequest) error { change(csr); return nil })
		}
	}
	ended := func(kind certificatesv1.RequestConditionType) func(*fake.Clientset) {
		return answered(func(csr *certificatesv1.CertificateSigningRequest) {
			csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: kind})
		})
	}
	forbidden := apierrors.NewForbidden(resource, "", nil)
	for name, tc := range map[string]struct {
		prepare func(*fake.Clientset)
		never   bool          // the cluster does not sign at all
		want    string        // part of the error; both empty: signed
		asks    time.Duration // 0: for as long as it takes
	}{
		"nobody signs":          {prepare: func(*fake.Clientset) {}, never: true},
		"denied":                {prepare: ended(certificatesv1.CertificateDenied), never: true},
		"failed":                {prepare: ended(certificatesv1.CertificateFailed), never: true},
		"forbidden":             {prepare: refusing("create", "", forbidden), never: true},
		"approval is forbidden": {prepare: refusing("update", "approval", forbidden), never: true},
		"another replica has deleted the request, and the peer asks again": {prepare: refusing("update", "approval", apierrors.NewNotFound(resource, "")), want: "not found"},
		"another replica's":       {prepare: answered(func(csr *certificatesv1.CertificateSigningRequest) { csr.UID = "other" }), want: "taken its place"},
		"away, and may well sign": {prepare: refusing("create", "", apierrors.NewServiceUnavailable("away")), want: "away"},
		"who asks goes":           {prepare: func(*fake.Clientset) {}, want: context.DeadlineExceeded.Error(), asks: time.Second},
		"but late": {prepare: func(core *fake.Clientset) {
			begin := time.Now()
			answered(func(csr *certificatesv1.CertificateSigningRequest) {
				if time.Since(begin) > 4500*time.Millisecond {
					csr.Status.Certificate = []byte("chain")
				}
			})(core)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				core := fake.NewClientset()
				tc.prepare(core)
				begin, ctx := time.Now(), t.Context()
				if tc.asks > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.asks)
					defer cancel()
				}
				chain, err := clusterOn(core).Sign(ctx, rome, checked(t), time.Hour)
				switch {
				case tc.never:
					require.ErrorIs(t, err, ErrNotSigned)
				case tc.want != "":
					require.ErrorContains(t, err, tc.want)
					require.NotErrorIs(t, err, ErrNotSigned)
				default:
					require.NoError(t, err)
					require.Equal(t, "chain", chain)
				}
				if name == "nobody signs" {
					require.Equal(t, signingTimeout, time.Since(begin))
				}
				if tc.never || tc.asks > 0 {
					require.Empty(t, kubetest.List(t, core.CertificatesV1().CertificateSigningRequests()).Items, "it is removed all the same")
				}
			})
		})
	}
}

// TestKubeAccountToken: in a new tenant namespace, the rights appear with a delay.
func TestKubeAccountToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := fake.NewClientset()
		tries := 0
		core.PrependReactor("create", "serviceaccounts", func(a k8stesting.Action) (bool, runtime.Object, error) {
			if tries++; tries < 80 { // 8 s
				return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts"}, "", nil)
			}
			if a.GetSubresource() != "token" {
				return false, nil, nil
			}
			return true, &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: "token", ExpirationTimestamp: metav1.NewTime(time.Unix(1e9, 0))}}, nil
		})
		k := clusterOn(core)
		token, end, err := k.AccountToken(t.Context(), rome, "peer-1", time.Hour)
		require.NoError(t, err)
		require.Equal(t, "token", token)
		require.Equal(t, time.Unix(1e9, 0), end)
		_, _, err = k.AccountToken(t.Context(), rome, "peer-1", time.Hour)
		require.NoError(t, err, "again")

		for _, name := range []string{"peer-2", "vk-rome", "default"} {
			kubetest.Create(t, core.CoreV1().ServiceAccounts("liqo-tenant-rome"), &corev1.ServiceAccount{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app.kubernetes.io/managed-by": "liqod"}}})
		}
		core.ClearActions()
		require.NoError(t, k.Retire(t.Context(), rome, "peer-2"))
		kubetest.RequireWrites(t, core, "delete serviceaccounts liqo-tenant-rome/peer-1")

		tries = -1 << 30
		_, _, err = k.AccountToken(t.Context(), rome, "peer-3", time.Hour)
		require.True(t, apierrors.IsForbidden(err), "%v", err)
	})
}

func TestKubeAPIServer(t *testing.T) {
	t.Parallel()
	root := configMap("liqod", "kube-root-ca.crt", "ca.crt", "the authority")
	info := configMap("kube-public", "cluster-info", "kubeconfig", "apiVersion: v1\nkind: Config\nclusters: [{name: '', cluster: {server: 'https://milan.example:6443'}}]\n")
	for name, tc := range map[string]struct {
		objects []runtime.Object
		setting string
		want    string
	}{
		"as configured":      {[]runtime.Object{root, info}, "https://set:6443", "https://set:6443"},
		"as kubeadm said":    {[]runtime.Object{root, info}, "", "https://milan.example:6443"},
		"as reached":         {[]runtime.Object{root}, "", "https://10.96.0.1:443"},
		"of no use":          {[]runtime.Object{root, configMap("kube-public", "cluster-info", "kubeconfig", "apiVersion: v1\nkind: Config\n")}, "", "https://10.96.0.1:443"},
		"without protection": {[]runtime.Object{root, configMap("kube-public", "cluster-info", "kubeconfig", "apiVersion: v1\nkind: Config\nclusters: [{name: '', cluster: {server: 'http://milan'}}]\n")}, "", "https://10.96.0.1:443"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, ca, err := clusterOn(fake.NewClientset(tc.objects...), func(c *ClusterConfig) { c.APIServerURL = tc.setting }).APIServer(t.Context())
			require.NoError(t, err)
			require.Equal(t, tc.want, url)
			require.Equal(t, "the authority", ca)
		})
	}
	_, _, err := clusterOn(fake.NewClientset()).APIServer(t.Context())
	require.Error(t, err)
}

func TestKubeReads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := metav1.Now()
	core := fake.NewClientset(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "uid"}},
		trust.NewSecret("liqod", trust.Record{ID: "a", Hash: trust.Hash("x")}),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "liqod", Name: "token-b", DeletionTimestamp: &now, Finalizers: []string{"a/b"}}},
		configMap("kube-system", "extension-apiserver-authentication", "client-ca-file", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.ca.Raw}))),
	)
	core.PrependReactor("create", "tokenreviews", func(a k8stesting.Action) (bool, runtime.Object, error) {
		review := a.(k8stesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		review.Status.Authenticated = review.Spec.Token == "good"
		review.Status.User.Username = "me"
		return true, review, nil
	})
	k := clusterOn(core)
	ctx := t.Context()
	uid, err := k.UID(ctx)
	require.NoError(t, err)
	require.Equal(t, "uid", uid)
	for id, there := range map[string]bool{"a": true, "b": false, "c": false} {
		secret, err := k.Token(ctx, id)
		require.NoError(t, err)
		require.Equal(t, there, secret != nil, id)
	}
	for token, want := range map[string]string{"good": "me", "bad": ""} {
		user, err := k.Authenticate(ctx, token)
		require.NoError(t, err)
		require.Equal(t, want, user)
	}
	pool, err := k.ClientCAs(ctx)
	require.NoError(t, err)
	again, err := k.ClientCAs(ctx)
	require.NoError(t, err)
	require.Same(t, pool, again, "believed for a while")
	_, err = clusterOn(fake.NewClientset(configMap("kube-system", "extension-apiserver-authentication", "client-ca-file", ""))).ClientCAs(ctx)
	require.Error(t, err)
}

func TestKubeOwn(t *testing.T) {
	t.Parallel()
	objects := []runtime.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.NodeSpec{PodCIDR: "10.1.0.0/24", PodCIDRs: []string{"10.1.0.0/24", "fd00:1::/64"}},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.168.7.4"}, {Type: corev1.NodeHostName, Address: "a"}}}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "liqod", Name: "controller"}, Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.2.3.4"}}}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "of-a-peer"}, Spec: corev1.PodSpec{NodeName: "milan"}, Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.9.3.4"}}}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "milan", Labels: map[string]string{offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode}}},
		// The network plugin has taken its address from a range that no Node tells.
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop"}, Spec: corev1.PodSpec{NodeName: "a"}, Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.244.3.4"}}}},
		&networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16"}}},
	}
	known := []string{"10.1.0.0/24", "fd00:1::/64", "192.168.7.4", "10.2.3.4", "10.244.3.4"}
	gone := func(err error) func(*fake.Clientset) {
		return func(core *fake.Clientset) {
			core.PrependReactor("list", "servicecidrs", func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, err })
		}
	}
	resource := schema.GroupResource{Group: "networking.k8s.io", Resource: "servicecidrs"}
	for name, tc := range map[string]struct {
		change func(*fake.Clientset)
		want   []string
		fails  bool
	}{
		"all":             {func(*fake.Clientset) {}, append(slices.Clone(known), "10.96.0.0/16", "10.96.0.1"), false},
		"no ServiceCIDRs": {gone(apierrors.NewNotFound(resource, "")), append(slices.Clone(known), "10.96.0.1"), false},
		"no answer":       {gone(apierrors.NewInternalError(errors.New("away"))), nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			core := fake.NewClientset(objects...)
			tc.change(core)
			own, err := clusterOn(core).Own(t.Context())
			require.Equal(t, tc.fails, err != nil)
			require.Equal(t, prefixes(tc.want), own)
		})
	}
}

// TestKubeNamespaces: namespaces of peers, also those that are kept for an earlier one, do not
// keep a peer from its id.
func TestKubeNamespaces(t *testing.T) {
	t.Parallel()
	ns := func(name string, labels, annotations map[string]string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: annotations}}
	}
	kube := fake.NewClientset(ns("bank", nil, nil), ns("shop-rome", map[string]string{corev1beta1.RemoteClusterIDLabel: "rome"}, nil),
		ns("kept-rome", nil, map[string]string{"offloading.liqo.io/consumer-uid": "rome/1"}), ns("label-rome", nil, map[string]string{"liqo.io/managed-by-namespace-map": "x/y"}), ns("liqo-tenant-rome", nil, nil))
	names, err := NewCluster(ClusterConfig{Kube: kube}).Namespaces(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"bank"}, names)
}
