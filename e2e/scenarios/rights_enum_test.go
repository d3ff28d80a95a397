package scenarios

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

// updateGolden makes the tests write the files that they otherwise compare with.
var updateGolden = flag.Bool("update", false, "write testdata/*-rights.txt, or the recordings in hack/promql/testdata, anew")

const (
	// wholeCluster is the scope of cluster-wide rights in the files.
	wholeCluster = "*"
	// withoutRights is a namespace without any RoleBinding: what holds there holds everywhere.
	withoutRights = "no-such-namespace"

	questionsAtOnce = 24
)

// holder is somebody whose rights in some scopes of a cluster are written down.
type holder struct {
	in                 *site.Site
	namespace, account string
	scopes             []string     // namespaces; the whole cluster comes by itself
	as                 *rest.Config // instead of an account
}

// config returns a client configuration with the holder's own credentials.
func (h holder) config(t *testing.T) *rest.Config {
	t.Helper()
	if h.as != nil {
		return h.as
	}
	data := must(h.in.KubeconfigData(t.Context(), lab.Access{Namespace: h.namespace, ServiceAccount: h.account}))(t)
	config := must(clientcmd.RESTConfigFromKubeConfig(data))(t)
	config.QPS = -1
	return config
}

// rights are verbs by line: the resource, and the names it is restricted to.
type rights map[string]map[string]bool

func (r rights) add(line string, verbs ...string) {
	if r[line] == nil {
		r[line] = map[string]bool{}
	}
	for _, v := range verbs {
		r[line][v] = true
	}
}

// without removes what holds in the whole cluster.
func (r rights) without(wide rights) {
	for line, verbs := range r {
		maps.DeleteFunc(verbs, func(v string, _ bool) bool { return wide[line][v] })
		if len(verbs) == 0 {
			delete(r, line)
		}
	}
}

func resourceName(group, resource string) string {
	if group == "" {
		return resource
	}
	name, sub, _ := strings.Cut(resource, "/")
	return strings.TrimSuffix(name+"."+group+"/"+sub, "/")
}

// question is one verb on one kind of resource.
type question struct {
	group, resource, subresource, verb string
	namespaced                         bool
}

// questions are all that discovery says can be asked for in a cluster.
func questions(t *testing.T, c *site.Site) []question {
	t.Helper()
	_, lists, err := c.Client().Discovery().ServerGroupsAndResources()
	require.NoError(t, err)
	seen := map[question]bool{}
	for _, list := range lists {
		group := ""
		if g, _, ok := strings.Cut(list.GroupVersion, "/"); ok {
			group = g
		}
		for _, r := range list.APIResources {
			name, sub, _ := strings.Cut(r.Name, "/")
			for _, verb := range r.Verbs {
				seen[question{group, name, sub, verb, r.Namespaced}] = true
			}
		}
	}
	return slices.Collect(maps.Keys(seen))
}

// ask puts every question that makes sense in a scope, and returns the ones answered yes.
func ask(ctx context.Context, client kubernetes.Interface, scope string, all []question) (rights, error) {
	have, mu := rights{}, sync.Mutex{}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(questionsAtOnce)
	for _, q := range all {
		attributes := &authorizationv1.ResourceAttributes{Verb: q.verb, Group: q.group, Resource: q.resource, Subresource: q.subresource}
		if scope != wholeCluster {
			if !q.namespaced {
				continue
			}
			attributes.Namespace = scope
		}
		group.Go(func() error {
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes}}
			answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("asking for %+v: %w", q, err)
			}
			if answer.Status.Allowed {
				mu.Lock()
				defer mu.Unlock()
				have.add(resourceName(q.group, strings.TrimSuffix(q.resource+"/"+q.subresource, "/")), q.verb)
			}
			return nil
		})
	}
	return have, group.Wait()
}

// rules adds what single questions cannot find: rights on single names, on resources
// that only RBAC knows, and on URLs.
func rules(ctx context.Context, client kubernetes.Interface, scope string, have rights) error {
	if scope == wholeCluster {
		scope = withoutRights
	}
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: scope}}
	answer, err := client.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("asking for the rules in %s: %w", scope, err)
	}
	for _, rule := range answer.Status.ResourceRules {
		names := ""
		if len(rule.ResourceNames) > 0 {
			names = " [" + strings.Join(slices.Sorted(slices.Values(rule.ResourceNames)), " ") + "]"
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				have.add(resourceName(group, resource)+names, rule.Verbs...)
			}
		}
	}
	for _, rule := range answer.Status.NonResourceRules {
		have.add("URLs ("+strings.Join(slices.Sorted(slices.Values(rule.Verbs)), " ")+")", rule.NonResourceURLs...)
	}
	return nil
}

// enumerate returns the rights of a holder as lines of text: scope, resource, verbs.
func enumerate(t *testing.T, h holder) string {
	t.Helper()
	client := must(kubernetes.NewForConfig(h.config(t)))(t)
	all := questions(t, h.in)
	var wide rights
	var out strings.Builder
	for _, scope := range append([]string{wholeCluster}, h.scopes...) {
		have := must(ask(t.Context(), client, scope, all))(t)
		require.NoError(t, rules(t.Context(), client, scope, have))
		if wide == nil {
			wide = have
		} else {
			have.without(wide)
		}
		for _, line := range slices.Sorted(maps.Keys(have)) {
			fmt.Fprintf(&out, "%-6s %-20s %-58s %s\n", h.in.Name, scope, line, strings.Join(slices.Sorted(maps.Keys(have[line])), " "))
		}
		if len(have) == 0 {
			fmt.Fprintf(&out, "%-6s %-20s nothing\n", h.in.Name, scope)
		}
	}
	return out.String()
}

// golden compares the rights of holders, all the same identity, with a file.
func golden(t *testing.T, file, what string, holders ...holder) {
	t.Helper()
	test, _, _ := strings.Cut(t.Name(), "/")
	have := "# " + what + `
# Found by asking the API server for every resource and verb that it serves, with
# the identity's own token, and for the rules behind them. Columns: cluster, namespace,
# resource [only these names], verbs. The namespace * is the whole cluster: what stands
# there holds in every namespace and is not repeated. Admission policies narrow it:
# charts/liqod/templates/policies.yaml. Written by: go test ./e2e/scenarios -run ` + test + ` -update
`
	for _, h := range holders {
		have += "\n" + enumerate(t, h)
	}
	path := filepath.Join("testdata", file)
	if *updateGolden {
		require.NoError(t, os.MkdirAll("testdata", 0o750))
		require.NoError(t, os.WriteFile(path, []byte(have), 0o600))
		return
	}
	want := must(os.ReadFile(path))(t)
	require.Empty(t, difference(string(want), have),
		"rights changed from those in %s: if that is meant, write the file anew with -update and let somebody read the difference", path)
}

// difference returns the lines that are in only one of two texts.
func difference(want, have string) string {
	wantLines, haveLines := strings.Split(want, "\n"), strings.Split(have, "\n")
	var out strings.Builder
	for _, line := range wantLines {
		if !slices.Contains(haveLines, line) {
			out.WriteString("\n- " + line)
		}
	}
	for _, line := range haveLines {
		if !slices.Contains(wantLines, line) {
			out.WriteString("\n+ " + line)
		}
	}
	return out.String()
}
