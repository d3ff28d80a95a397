package cmd

import (
	"context"
	"maps"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/liqod/liqod/roles/cmd/report"
)

// mostOfKind limits the objects that are read of a kind to find what is different in providers.
const mostOfKind = 500

// applicationsAtOnce limits the namespaces that are read at a time.
const applicationsAtOnce = 4

// readApplications reads the applications of the namespaces whose pods may run in providers, and the offers
// if only one namespace is read.
func readApplications(ctx context.Context, to *clients, s *report.Snapshot) {
	s.Applications = map[string]*report.Application{}
	var mu sync.Mutex
	each(s.Leaving(), applicationsAtOnce, func(namespace string) {
		has := readApplication(ctx, to, namespace) // with its errors
		mu.Lock()
		defer mu.Unlock()
		s.Applications[namespace] = has
	})
	if s.Only != "" {
		shared, err := to.liqo.SharingV1alpha1().ResourceOffers("").List(ctx, metav1.ListOptions{})
		if s.Offers = shared.Items; err != nil {
			s.Unread[report.ReadOffers] = err
		}
	}
	if has := s.Applications[s.Only]; has != nil {
		maps.Copy(s.Unread, has.Unread)
		has.Unread = nil
	}
}

// readApplication reads what a namespace has that may be different in providers. It leaves out Jobs that
// have ended or have an owner, such as a CronJob, that is read itself.
func readApplication(ctx context.Context, to *clients, namespace string) *report.Application {
	has := &report.Application{Unread: map[string]error{}}
	works := func(kind string, o metav1.Object, pod *corev1.PodTemplateSpec) {
		has.Workloads = append(has.Workloads, report.Workload{Name: kind + " " + o.GetName(), Meta: pod.ObjectMeta, Pod: pod.Spec})
	}
	apps, batch := to.kube.AppsV1(), to.kube.BatchV1()
	firstOf(ctx, has, report.ReadPolicies, to.kube.NetworkingV1().NetworkPolicies(namespace).List, func(o *networkingv1.NetworkPolicy) { has.Policies = append(has.Policies, o.Name) })
	firstOf(ctx, has, report.ReadBudgets, to.kube.PolicyV1().PodDisruptionBudgets(namespace).List, func(o *policyv1.PodDisruptionBudget) { has.Budgets = append(has.Budgets, o.Name) })
	firstOf(ctx, has, report.ReadDaemonSets, apps.DaemonSets(namespace).List, func(o *appsv1.DaemonSet) { has.DaemonSets = append(has.DaemonSets, o.Name) })
	firstOf(ctx, has, report.ReadWorkloads, apps.Deployments(namespace).List, func(o *appsv1.Deployment) { works("Deployment", o, &o.Spec.Template) })
	firstOf(ctx, has, report.ReadWorkloads, apps.StatefulSets(namespace).List, func(o *appsv1.StatefulSet) { works("StatefulSet", o, &o.Spec.Template) })
	firstOf(ctx, has, report.ReadWorkloads, batch.CronJobs(namespace).List, func(o *batchv1.CronJob) { works("CronJob", o, &o.Spec.JobTemplate.Spec.Template) })
	firstOf(ctx, has, report.ReadServices, to.kube.CoreV1().Services(namespace).List, func(o *corev1.Service) { has.Services = append(has.Services, *o) })
	firstOf(ctx, has, report.ReadWorkloads, batch.Jobs(namespace).List, func(o *batchv1.Job) {
		if metav1.GetControllerOf(o) == nil && o.Status.CompletionTime == nil {
			works("Job", o, &o.Spec.Template)
		}
	})
	return has
}

// firstOf calls see with objects of an application, mostOfKind at most. T is a pointer to an item of the list L.
func firstOf[T any, L interface {
	runtime.Object
	metav1.ListInterface
}](ctx context.Context, has *report.Application, what string, list func(context.Context, metav1.ListOptions) (L, error), see func(T)) {
	page, err := list(ctx, metav1.ListOptions{Limit: mostOfKind})
	if err != nil {
		has.Unread[what] = err
		return
	}
	has.More = has.More || page.GetContinue() != ""
	_ = meta.EachListItem(page, func(obj runtime.Object) error { // of a list that has items
		if o, is := obj.(T); is {
			see(o)
		}
		return nil
	})
}
