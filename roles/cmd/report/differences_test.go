package report

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
)

// TestDifferences: what is different in providers is said of what a namespace has, and of nothing else.
func TestDifferences(t *testing.T) {
	arguments := func(name string, args ...string) Workload {
		return Workload{Name: name, Pod: corev1.PodSpec{Containers: []corev1.Container{{Args: args}}}}
	}
	reference := func(path string) corev1.EnvVar {
		return corev1.EnvVar{Name: "POD_NAMESPACE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
	}
	files := func(path string) []corev1.DownwardAPIVolumeFile {
		return []corev1.DownwardAPIVolumeFile{{Path: "f", FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
	}
	const unresolved = ": in a provider it does not resolve, or leads to a Service of the provider, unless its namespace is offloaded there with the same name: docs/compatibility.md#names"
	for name, tc := range map[string]struct {
		has  Application
		spec offloadingv1beta1.NamespaceOffloadingSpec
		want []string
	}{
		"nothing": {},
		"policy": {has: Application{Policies: []string{"deny-all"}},
			want: []string{"NetworkPolicy deny-all: is not sent to providers, and does not bind pods there: docs/compatibility.md#network"}},
		"policies": {has: Application{Policies: []string{"a", "b", "c", "d", "e"}},
			want: []string{"NetworkPolicy a, b, c and 2 more: is not sent to providers, and does not bind pods there: docs/compatibility.md#network"}},
		"budget": {has: Application{Budgets: []string{"web"}},
			want: []string{"PodDisruptionBudget web: drains in this cluster respect it, drains in a provider do not: docs/compatibility.md#scheduling-and-limits"}},
		"DaemonSet": {has: Application{DaemonSets: []string{"agent"}},
			want: []string{"DaemonSet agent: a virtual node gets one pod of it at most, and not each node of the provider: docs/compatibility.md#scheduling-and-limits"}},
		"hostNetwork": {has: Application{Workloads: []Workload{{Name: "Deployment proxy", Pod: corev1.PodSpec{HostNetwork: true}}, {Name: "Deployment web"}}},
			want: []string{"hostNetwork of Deployment proxy: in a provider the pod has a network of its own instead: docs/compatibility.md#network"}},
		"full name in an argument": {has: Application{Workloads: []Workload{arguments("Deployment front", "--backend=http://web.shop.svc.cluster.local:8080/x")}},
			want: []string{"full name web.shop.svc of Deployment front" + unresolved}},
		"full names in variables and commands": {has: Application{Workloads: []Workload{{Name: "CronJob sync", Pod: corev1.PodSpec{
			InitContainers: []corev1.Container{{Command: []string{"sh", "-c", "nc db-0.db.shop.svc 5432"}}},
			Containers:     []corev1.Container{{Env: []corev1.EnvVar{{Name: "A", Value: "a.other.svc,a.other.svc.cluster.local"}}}}}}}},
			want: []string{"full name a.other.svc, db-0.db.shop.svc of CronJob sync" + unresolved}},
		"twins of the same name": {has: Application{Workloads: []Workload{arguments("Deployment front", "web.shop.svc.cluster.local", "web.other.svc")}},
			spec: offloadingv1beta1.NamespaceOffloadingSpec{NamespaceMappingStrategy: offloadingv1beta1.EnforceSameName},
			want: []string{"full name web.other.svc of Deployment front" + unresolved}},
		"twins of a selected name that is the same": {has: Application{Workloads: []Workload{arguments("Deployment front", "web.shop.svc.cluster.local")}},
			spec: offloadingv1beta1.NamespaceOffloadingSpec{NamespaceMappingStrategy: offloadingv1beta1.SelectedName, RemoteNamespaceName: "shop"}},
		"services at home, where full names resolve": {has: Application{Workloads: []Workload{arguments("Deployment front", "web.other.svc")}},
			spec: offloadingv1beta1.NamespaceOffloadingSpec{Services: offloadingv1beta1.ServicesHome},
			want: []string{"services Home: each call by name of a pod in a provider goes through this cluster, and stops while it cannot be reached: docs/networking.md#services-at-home"}},
		"no full names": {has: Application{Workloads: []Workload{arguments("Deployment front", "web", "web.shop", "web.$(NAMESPACE).svc.cluster.local", "x.y.svc-z", "a.b.svcs",
			"https://kubernetes.default.svc", "kubernetes.default.svc.cluster.local:443")}}},
		"references to the pod's namespace and addresses": {has: Application{Workloads: []Workload{
			{Name: "Deployment api", Pod: corev1.PodSpec{Containers: []corev1.Container{{Env: []corev1.EnvVar{reference("metadata.namespace"), reference("status.hostIP"), {Name: "URL", Value: "web.$(POD_NAMESPACE).svc"}}}}}},
			{Name: "Deployment uid", Pod: corev1.PodSpec{Containers: []corev1.Container{{Env: []corev1.EnvVar{reference("metadata.uid"), reference("spec.nodeName"), reference("metadata.name")}}}}},
			{Name: "StatefulSet db", Pod: corev1.PodSpec{InitContainers: []corev1.Container{{Env: []corev1.EnvVar{reference("status.podIPs")}}}, Volumes: []corev1.Volume{
				{VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: files("status.hostIPs")}}},
				{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{DownwardAPI: &corev1.DownwardAPIProjection{Items: files("metadata.namespace")}}}}}}}}}}},
			want: []string{
				"fieldRef metadata.namespace of Deployment api, StatefulSet db: in a provider it is the name of the twin, and this cluster's API server knows no such namespace; with --namespace-mapping-strategy EnforceSameName it is the same: docs/compatibility.md#names",
				"fieldRef status.podIP of StatefulSet db: in a provider it is the address there, and this cluster may reach the pod at another one, unless ipam.keep or spec.trust Organisation of the ForeignCluster keeps it: docs/compatibility.md#network",
				"fieldRef status.hostIP of Deployment api, StatefulSet db: in a provider it is the address of a node there, which this cluster does not reach: docs/compatibility.md#names"}},
		"references, and twins of the same name": {has: Application{Workloads: []Workload{{Name: "Deployment api", Pod: corev1.PodSpec{Containers: []corev1.Container{{Env: []corev1.EnvVar{reference("metadata.namespace")}}}}}}},
			spec: offloadingv1beta1.NamespaceOffloadingSpec{NamespaceMappingStrategy: offloadingv1beta1.EnforceSameName}},
		"more objects than are read": {has: Application{More: true}, want: []string{"the namespace has more objects: of each kind only some were looked at: docs/compatibility.md"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Snapshot{Only: "shop", Offloadings: []offloadingv1beta1.NamespaceOffloading{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}, Spec: tc.spec}}}
			s.Applications = map[string]*Application{"shop": &tc.has}
			require.Equal(t, tc.want, s.Differences("shop"))
		})
	}
	s := &Snapshot{Offloadings: []offloadingv1beta1.NamespaceOffloading{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}}, {ObjectMeta: metav1.ObjectMeta{Namespace: "batch"}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "taken-back", DeletionTimestamp: ptr.To(ago(0))}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "stays"}, Spec: offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsLocal}},
	}}
	require.Equal(t, []string{"batch", "shop"}, s.Leaving())
	require.Empty(t, s.Differences("shop"), "not read")
}

// TestLeftOutOfProviders: what a provider does not accept of an application is said before its first pod, for each
// provider by its own offer.
func TestLeftOutOfProviders(t *testing.T) {
	offer := func(provider string, a *sharingv1alpha1.Accepts) sharingv1alpha1.ResourceOffer {
		return sharingv1alpha1.ResourceOffer{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-" + provider, Name: provider}, Spec: sharingv1alpha1.ResourceOfferSpec{ProviderClusterID: provider, Accepts: a}}
	}
	strict := &sharingv1alpha1.Accepts{Trust: corev1beta1.TrustStrict, Annotations: []string{"kubectl.kubernetes.io/*"}, LabelsLeftOut: []string{"istio.io/*"},
		ServiceTypes: []string{"ClusterIP", "NodePort"}, VolumeTypes: []string{"emptyDir"}}
	open := &sharingv1alpha1.Accepts{Trust: corev1beta1.TrustOrganisation, Annotations: []string{"*"}, ServiceTypes: []string{"ClusterIP", "NodePort", "ExternalName"},
		ServiceFields: []string{"nodePort"}, VolumeTypes: []string{"emptyDir", "nfs"}}
	further := offer("milan", strict)
	further.Name = "milan-2"
	mine := offer("rome", strict) // this cluster's own, to milan
	mine.Namespace = "liqo-tenant-milan"
	spec := func(v corev1.VolumeSource) corev1.PodSpec {
		return corev1.PodSpec{NodeSelector: map[string]string{"disk": "fast"}, Volumes: []corev1.Volume{{Name: "v", VolumeSource: v}}}
	}
	forced := corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "forced", Annotations: map[string]string{offloadingv1beta1.ForceRemoteNodePortAnnotation: "true"}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, ClusterIP: "10.96.0.7", Ports: []corev1.ServicePort{{Port: 80, NodePort: 30080}}}}
	usual := *forced.DeepCopy()
	usual.Name, usual.Annotations = "usual", map[string]string{"note": "a"}
	named := corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "db.example.com"}}
	has := &Application{
		Workloads: []Workload{
			{Name: "Deployment nfs", Pod: spec(corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nfs"}})},
			{Name: "Deployment web", Meta: metav1.ObjectMeta{Labels: map[string]string{"app": "web", "sidecar.istio.io/inject": "true"}, Annotations: map[string]string{"example.com/a": "1", "kubectl.kubernetes.io/restartedAt": "x"}}, Pod: spec(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})},
		},
		Services: []corev1.Service{named, forced, usual},
	}
	s := &Snapshot{Only: "shop", Applications: map[string]*Application{"shop": has}, Offers: []sharingv1alpha1.ResourceOffer{offer("milan", strict), further, offer("oslo", open), offer("paris", nil), mine}}
	require.Equal(t, []string{
		"in milan Deployment nfs: refused there: VolumeTypeRefused: spec.volumes \"v\" is a volume of type nfs: cluster milan accepts from peers: emptyDir; its administrators can allow more by the setting controller.volumeTypes",
		"in milan Service forced: there without it: a node port is set to 30080: it allocates it; its setting sharing.serviceFields lets peers choose it (nodePort)",
		"in milan Service db: there without it: spec.type is ExternalName: it accepts ClusterIP, NodePort from peers; its setting sharing.serviceTypes allows others",
		"in milan Deployment web: without example.com/a, label sidecar.istio.io/inject there: its settings sharing.annotations and sharing.labelsLeftOut",
		"in milan: " + StrictProvider + ": docs/security.md#how-far-this-cluster-trusts-its-peers",
	}, s.Differences("shop"))
	s.Applications["shop"] = &Application{Services: []corev1.Service{usual}}
	require.Empty(t, s.Differences("shop"))
}

// TestDifferencesInCheck: check has one line for a namespace with differences, which is no warning, and
// names what could not be read.
func TestDifferencesInCheck(t *testing.T) {
	s := healthy(t)
	s.Program = "liqod"
	s.Applications = map[string]*Application{"shop": {Policies: []string{"deny-all"}, Budgets: []string{"web"}, Unread: map[string]error{ReadWorkloads: errors.New("forbidden")}}}
	require.Contains(t, CheckText(Check(s)), "\n  ✔ application in namespace shop: different in providers: NetworkPolicy deny-all; PodDisruptionBudget web; "+
		"Deployments, StatefulSets, CronJobs and Jobs cannot be read (liqod status -n shop says how)\n")
	require.Equal(t, OK, Summarize(s).Health)
	require.Empty(t, Summarize(s).Warnings)
	s.Applications = map[string]*Application{"shop": {}}
	require.NotContains(t, CheckText(Check(s)), "application")
}

// TestPodsBesideTheOffloading: the status of a namespace tells the pods that its offloading does not move, those
// that ask for virtual nodes without one, and those that are left there.
func TestPodsBesideTheOffloading(t *testing.T) {
	const stay = "existing pods stay on nodes of this cluster until they are created again"
	home := func(s *Snapshot, change ...func(*corev1.Pod)) {
		for _, c := range append(change, func(*corev1.Pod) {}) {
			p := broken(s, "old", "rome-1", unreadyFor("", ""))
			p.Status.Conditions[0].Status = corev1.ConditionTrue
			c(p)
		}
	}
	remote := func(s *Snapshot) { s.Offloadings[0].Spec.PodOffloadingStrategy = offloadingv1beta1.PodsRemote }
	claims := func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	}
	for name, tc := range map[string]struct {
		change   func(*Snapshot)
		contains []string
	}{
		"older pods": {func(s *Snapshot) { remote(s); home(s, claims) },
			[]string{"healthy, 1 warning", "‼ pods of namespace shop: 2 pods created before the namespace was offloaded: " + stay, "Fix: kubectl -n shop rollout restart deployment web\n"}},
		"an older pod that may be kept by its claim": {func(s *Snapshot) { home(s, claims) }, []string{"shop: 1 pod created before the namespace was offloaded: "}},
		"an older pod of its own": {func(s *Snapshot) { home(s); s.Pods[len(s.Pods)-1].OwnerReferences = nil },
			[]string{"Fix: kubectl -n shop get pods -o wide\n           shows them. Nothing creates them again by itself."}},
		"pods that the offloading does not concern": {func(s *Snapshot) {
			home(s, func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "DaemonSet" }, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded },
				func(p *corev1.Pod) {
					offloadedAs(p, offloadingv1beta1.PodsLocalAndRemote, corev1.NodeSelector{})
					p.Spec.NodeName = "rome-1"
				})
			s.Pods = s.Pods[:len(s.Pods)-1]
		}, []string{"cluster rome: healthy\n"}},
		"strategy Local": {func(s *Snapshot) { home(s); s.Offloadings[0].Spec.PodOffloadingStrategy = offloadingv1beta1.PodsLocal }, []string{"cluster rome: healthy\n"}},
		"the label of the namespace alone": {func(s *Snapshot) {
			s.Offloadings, s.Pods, s.Labels = nil, nil, map[string]string{offloadingv1beta1.SchedulingEnabledLabel: "true"}
		}, []string{"‼ namespace shop: it has the label liqo.io/scheduling-enabled, which lets no pod go to virtual nodes: the namespace is not offloaded\n      Fix: liqod offload namespace shop\n"}},
		"the label of a pod": {func(s *Snapshot) {
			home(s, func(p *corev1.Pod) { p.Labels[offloadingv1beta1.SchedulingEnabledLabel] = "true" })
			s.Offloadings, s.Pods = nil, s.Pods[3:]
		}, []string{"‼ namespace shop: pod old has the label liqo.io/scheduling-enabled, "}},
		"pods that are left on virtual nodes": {func(s *Snapshot) { s.Offloadings = nil },
			[]string{"The namespace is not offloaded.\nOn virtual nodes nevertheless: 2 pods.\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := healthy(t)
			s.Pods = s.Pods[:3]
			s.Only = "shop"
			tc.change(s)
			text := Summarize(s).Text(false)
			for _, part := range tc.contains {
				require.Contains(t, text, part)
			}
		})
	}
	s := Offloaded(&healthy(t).Offloadings[0])
	home(s)
	require.Equal(t, "\n1 pod created before the namespace was offloaded: "+stay+":\n  kubectl -n shop rollout restart deployment web\n\n", DifferencesText(s), "offload says it too")
}

// TestUnreadPartsAreNamed: what of an application could not be read is said, whatever it is.
func TestUnreadPartsAreNamed(t *testing.T) {
	for _, what := range []string{ReadPolicies, ReadBudgets, ReadDaemonSets, ReadWorkloads, ReadServices, ReadOffers, ReadPods} {
		s := Offloaded(&offloadingv1beta1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}})
		s.Unread[what] = apierrors.NewForbidden(corev1.Resource("x"), "", nil)
		require.Contains(t, DifferencesText(s), "No right to read "+what+".\n")
		require.Contains(t, Summarize(s).Text(false), "No right to read "+what+".\n")
		s.Unread[what] = errors.New("away")
		require.Contains(t, DifferencesText(s), what+" cannot be read: away\n")
	}
}
