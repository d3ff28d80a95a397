package timed

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

// Roles under test.
const (
	vkubelet        = "vkubelet"
	romeController  = "controller of rome"
	milanController = "controller of milan"
	romeWebhook     = "webhook of rome"
	romeCommand     = "command in rome"
	milanCommand    = "command in milan"
)

// longestTakeOver is how long a replica may take to lead in place of a paused one.
const longestTakeOver = 30 * time.Second

const peerUser = "system:serviceaccount:liqo-tenant-rome:peer-1"

// roleOf is the role that has sent a request to a cluster, "" if that is not under test.
func roleOf(cluster string, r lab.Request) string {
	_, kind, found := strings.Cut(r.UserAgent, " ")
	home := sender(cluster, r) == "rome"
	switch {
	case !found || !strings.HasPrefix(r.UserAgent, "liqod/"):
		return ""
	case kind == "vkubelet":
		return vkubelet
	case kind == "controller" && home:
		return romeController
	case kind == "controller":
		return milanController
	case kind == "webhook" && home:
		return romeWebhook
	case kind == "command" && cluster == "rome":
		return romeCommand
	case kind == "command":
		return milanCommand
	}
	return ""
}

// sender is the cluster that a request to one comes from.
func sender(cluster string, r lab.Request) string {
	if r.User == peerUser {
		return "rome"
	}
	if identity, found := strings.CutPrefix(r.User, corev1beta1.PeerUserPrefix); found {
		peer, _, _ := strings.Cut(identity, ":")
		return peer
	}
	return cluster
}

// roles are the processes under test, by name.
type roles map[string]*role

// role is a process that is killed and started again at once, as the container of a pod is:
// the next process has the same identity in leader elections.
type role struct {
	name  string
	start func(**lab.Process) error

	mu     sync.Mutex // held while the process is being replaced
	target **lab.Process
	// cutOff: no request that the process still sends may arrive.
	cutOff atomic.Bool
	kills  atomic.Int64
	// lease returns the holder of the role's Lease; standby has the replicas beside target, by identity.
	lease   func(context.Context) (holder string, err error)
	standby map[string]*lab.Process
	// failed has the first failure to start or pause the process.
	failed atomic.Pointer[error]
}

// newRoles restarts the processes of roles, each with an identity in leader elections.
func newRoles(w *world, names ...string) (roles, error) {
	r := roles{}
	running := map[string]**lab.Process{
		vkubelet: w.Rome.VKubelet("milan"), romeController: &w.Rome.Controller, milanController: &w.Milan.Controller, romeWebhook: &w.Rome.Webhook,
	}
	for _, name := range names {
		one := newRole(w, name, running[name])
		(*one.target).Options.Env = append((*one.target).Options.Env, one.podName())
		if err := one.restart(); err != nil {
			return nil, err
		}
		r[name] = one
	}
	return r, nil
}

func newRole(w *world, name string, target **lab.Process) *role {
	return &role{name: name, target: target, start: w.Sites.Restart, lease: leaseOf(w, name), standby: map[string]*lab.Process{}}
}

// podName sets the identity of the process in leader elections.
func (r *role) podName() string { return "POD_NAME=" + r.identity() }

func (r *role) identity() string { return strings.ReplaceAll(r.name, " ", "-") }

// leaseOf reads the holder of the Lease of a role.
func leaseOf(w *world, role string) func(context.Context) (string, error) {
	client, namespace, name := w.Rome.Client(), site.Namespace, "liqod-controller"
	switch role {
	case milanController:
		client = w.Milan.Client()
	case romeWebhook:
		name = "liqod-webhook"
	case vkubelet:
		namespace, name = "liqo-tenant-milan", "vk-milan"
	}
	return func(ctx context.Context) (string, error) {
		lease, err := client.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil || lease.Spec.HolderIdentity == nil {
			return "", err
		}
		return *lease.Spec.HolderIdentity, nil
	}
}

// restart kills the process, if it runs, and starts it.
func (r *role) restart() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.replace()
}

func (r *role) replace() error {
	(*r.target).Kill()
	err := r.start(r.target)
	if err != nil {
		err = fmt.Errorf("starting the %s again: %w", r.name, err)
		r.failed.CompareAndSwap(nil, &err)
	}
	r.cutOff.Store(false)
	return err
}

// kill kills the process. When it returns the process is dead, and is being started again.
func (r *role) kill() {
	r.mu.Lock()
	(*r.target).Kill()
	r.kills.Add(1)
	go func() {
		defer r.mu.Unlock()
		_ = r.replace() // recorded in failed
	}()
}

// startStandby starts a second replica, which ends with the test.
func (r *role) startStandby(w *world) error {
	identity := r.identity() + "-standby"
	var err error
	r.standby[identity], err = w.Sites.Replica(*r.target, "-standby", "POD_NAME="+identity)
	return err
}

// pause pauses the replica that leads, and resumes it when another one leads. One is paused
// at a time. The run whose write it is may end meanwhile.
func (r *role) pause() {
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), longestTakeOver)
	defer cancel()
	err := r.pauseUntilReplaced(ctx)
	if err != nil {
		err = fmt.Errorf("pausing the leader of role %s: %w", r.name, err)
		r.failed.CompareAndSwap(nil, &err)
	}
}

func (r *role) pauseUntilReplaced(ctx context.Context) error {
	holder, err := r.lease(ctx)
	if err != nil {
		return err
	}
	process := *r.target
	if other := r.standby[holder]; other != nil {
		process = other
	}
	process.Pause()
	defer process.Resume()
	return lab.Eventually(ctx, func(ctx context.Context) error {
		next, err := r.lease(ctx)
		return lab.Wrong(err, next == holder, "%s still leads", holder)
	})
}

func (r roles) kills() (n int64) {
	for _, one := range r {
		n += one.kills.Load()
	}
	return n
}

// err waits for processes that are being replaced or paused, and returns a failure.
func (r roles) err() error {
	for _, one := range r {
		if err := one.err(); err != nil {
			return err
		}
	}
	return nil
}

func (r *role) err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.failed.Load(); err != nil {
		return *err
	}
	return nil
}
