// Package roles holds every entry point of the binary: the list of roles, their wiring,
// the process around them and the commands for people. It is the only package that knows
// all others; nothing imports it but main.
package roles

import (
	"context"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/kube/client"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/roles/cmd"
	"github.com/liqod/liqod/roles/config"
)

// A Role is one job of the binary.
type Role struct {
	// Name selects the role: --role=NAME.
	Name string
	// Short says in one line what it does.
	Short string
	// Build wires the role and starts nothing. nil: this version does not have the role.
	Build func(ctx context.Context, env Env) (Parts, error)
}

// Parts is what a role consists of.
type Parts struct {
	// Actors run side by side; the first one to fail ends the process.
	Actors []Actor
	// Leader runs the leased actors, all under one lease; nil when there are none.
	Leader Leader
}

// An Actor runs until ctx ends, and returns nil then, when all that it started has
// returned. One that returns earlier has failed.
type Actor struct {
	// Name of the actor in logs and errors.
	Name string
	// Leased actors run only while this replica leads. They are run again when it leads
	// again.
	Leased bool
	// Run blocks. Its error ends the process, unless the lease has been lost.
	Run func(ctx context.Context) error
}

// A Leader runs work while this process leads: each time anew, until ctx is done. The
// context of work ends when the lease is lost; a Leader waits for work before it stands
// again or gives the lease back. kube/lease has one.
type Leader interface {
	Run(ctx context.Context, work func(ctx context.Context) error) error
}

// Env is what a role is given to build itself from.
type Env struct {
	// Config is the effective configuration, checked for this role.
	Config *config.Effective
	// Log is named after the role.
	Log *zap.Logger
	// Registry takes metrics, named liqod_<subsystem>_<what>_<unit>.
	Registry prometheus.Registerer
	// Observer is for every loop of the role: it feeds metrics and /livez.
	Observer loop.Observer
	// Tracker is what Observer tells of lateness. A loop that ends before the process
	// does is forgotten there.
	Tracker *health.Tracker
	// Requests returns the observer for the clients of one API server; server is "home"
	// or the name of a peer.
	Requests func(server string) client.Observer
	// Ready takes the conditions for traffic to be sent to this process.
	Ready *health.Checks
	// Clock is the real one.
	Clock clock.WithTicker
	// Version of the binary.
	Version string
	// UserAgent is for every client of the role.
	UserAgent string
}

// find returns the roles with these names, or an error that names the first that there
// is not, with the exit code's meaning of a wrong command line.
func find(all []Role, names []string) ([]Role, error) {
	if len(names) == 0 {
		return nil, cmd.Usagef("no role given: --role=NAME, one or more of %s", strings.Join(roleNames(all), ", "))
	}
	var found []Role
	for _, name := range names {
		i := slices.IndexFunc(all, func(r Role) bool { return r.Name == name })
		switch {
		case i < 0:
			return nil, cmd.Usagef("role %q is not accepted: one or more of %s", name, strings.Join(roleNames(all), ", "))
		case all[i].Build == nil:
			return nil, cmd.Usagef("role %s is not built yet: this version of liqod has %s", name, strings.Join(built(all), ", "))
		case slices.ContainsFunc(found, func(r Role) bool { return r.Name == name }):
			return nil, cmd.Usagef("role %s is given twice", name)
		}
		found = append(found, all[i])
	}
	return found, nil
}

func roleNames(roles []Role) (names []string) {
	for _, r := range roles {
		names = append(names, r.Name)
	}
	return names
}

func built(roles []Role) []string {
	return roleNames(slices.DeleteFunc(slices.Clone(roles), func(r Role) bool { return r.Build == nil }))
}
