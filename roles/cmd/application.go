package cmd

import (
	"context"
	"maps"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	var group errgroup.Group
	group.SetLimit(applicationsAtOnce)
	for _, namespace := range s.Leaving() {
		group.Go(func() error {
			has := readApplication(ctx, to, namespace)
			mu.Lock()
			defer mu.Unlock()
			s.Applications[namespace] = has
			return nil
		})
	}
	_ = group.Wait() // the errors are in the applications
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
	limit := metav1.ListOptions{Limit: mostOfKind}
	noted := func(what string, page metav1.ListInterface, err error) {
		if err != nil {
			has.Unread[what] = err
			return
		}
		has.More = has.More || page.GetContinue() != ""
	}
	works := func(name string, pod corev1.PodTemplateSpec) {
		has.Workloads = append(has.Workloads, report.Workload{Name: name, Meta: pod.ObjectMeta, Pod: pod.Spec})
	}
	policies, err := to.kube.NetworkingV1().NetworkPolicies(namespace).List(ctx, limit)
	noted(report.ReadPolicies, policies, err)
	for i := range policies.Items {
		has.Policies = append(has.Policies, policies.Items[i].Name)
	}
	disruptions, err := to.kube.PolicyV1().PodDisruptionBudgets(namespace).List(ctx, limit)
	noted(report.ReadBudgets, disruptions, err)
	for i := range disruptions.Items {
		has.Budgets = append(has.Budgets, disruptions.Items[i].Name)
	}
	daemons, err := to.kube.AppsV1().DaemonSets(namespace).List(ctx, limit)
	noted(report.ReadDaemonSets, daemons, err)
	for i := range daemons.Items {
		has.DaemonSets = append(has.DaemonSets, daemons.Items[i].Name)
	}
	deployments, err := to.kube.AppsV1().Deployments(namespace).List(ctx, limit)
	noted(report.ReadWorkloads, deployments, err)
	for i := range deployments.Items {
		works("Deployment "+deployments.Items[i].Name, deployments.Items[i].Spec.Template)
	}
	sets, err := to.kube.AppsV1().StatefulSets(namespace).List(ctx, limit)
	noted(report.ReadWorkloads, sets, err)
	for i := range sets.Items {
		works("StatefulSet "+sets.Items[i].Name, sets.Items[i].Spec.Template)
	}
	crons, err := to.kube.BatchV1().CronJobs(namespace).List(ctx, limit)
	noted(report.ReadWorkloads, crons, err)
	for i := range crons.Items {
		works("CronJob "+crons.Items[i].Name, crons.Items[i].Spec.JobTemplate.Spec.Template)
	}
	services, err := to.kube.CoreV1().Services(namespace).List(ctx, limit)
	noted(report.ReadServices, services, err)
	has.Services = services.Items
	jobs, err := to.kube.BatchV1().Jobs(namespace).List(ctx, limit)
	noted(report.ReadWorkloads, jobs, err)
	for i := range jobs.Items {
		if d := &jobs.Items[i]; metav1.GetControllerOf(d) == nil && d.Status.CompletionTime == nil {
			works("Job "+d.Name, d.Spec.Template)
		}
	}
	return has
}
