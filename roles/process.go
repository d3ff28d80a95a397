package roles

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/go-logr/zapr"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/kube/client"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/roles/config"
)

// process runs one or more roles concurrently.
type process struct {
	cfg      *config.Effective
	log      *zap.Logger
	registry *prometheus.Registry
	register *registry // of registry
	metrics  *metrics
	ready    health.Checks
	trackers []namedTracker
}

type namedTracker struct {
	role string
	*health.Tracker
}

func newProcess(cfg *config.Effective, stderr io.Writer) *process {
	p := &process{cfg: cfg, log: newLogger(cfg.Log, stderr), registry: prometheus.NewRegistry()}
	p.register = &registry{Registerer: p.registry}
	p.metrics = newMetrics(p.register, version(), p.behind)
	return p
}

// bridge configures the global state of client-go: its logger and HTTP/2. It must be
// called before the first client is created.
func (p *process) bridge() error {
	klog.SetLoggerWithOptions(zapr.NewLogger(p.log.Named("client-go")), klog.ContextualLogger(true)) // one per process
	return client.SetHTTP2Pings()
}

const (
	// lateAfter is how long work may wait while no loop makes progress. /livez fails after it.
	lateAfter = 5 * time.Minute
	// shutdownTimeout is the time from SIGTERM until the process ends, even if some work has not
	// stopped.
	shutdownTimeout = 30 * time.Second
)

// run builds the roles and runs them until a signal arrives or an actor fails. It does not
// wait for the actors any longer after a second signal, or after shutdownTimeout.
func (p *process) run(ctx context.Context, roles []Role, signals <-chan os.Signal) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := newSupervisor(p.log)
	p.ready.Add("process", func() error {
		if s.isStopping() {
			return errors.New("shutting down")
		}
		return nil
	})
	for _, role := range roles {
		if err := p.add(ctx, s, role); err != nil {
			return fmt.Errorf("role %s: %w", role.Name, err)
		}
	}
	p.log.Info("started", zap.Strings("roles", roleNames(roles)), zap.String("version", version()))
	stopServing := p.serveHealth(ctx, s)
	defer stopServing()
	return p.wait(ctx, cancel, s, signals)
}

func (p *process) add(ctx context.Context, s *supervisor, role Role) error {
	tracker := health.NewTracker(lateAfter, clock.RealClock{})
	tracker.Caught = func(loop string, lag time.Duration) {
		p.metrics.lag.WithLabelValues(p.metrics.loops.value(loop)).Observe(lag.Seconds())
	}
	p.trackers = append(p.trackers, namedTracker{role.Name, tracker})
	parts, err := role.Build(ctx, Env{
		Config:    p.cfg,
		Log:       p.log.Named(role.Name),
		Registry:  p.register,
		Observer:  loops{queues{p.metrics}, tracker},
		Tracker:   tracker,
		Requests:  func(server string) client.Observer { return requests{p.metrics, server} },
		Denied:    p.metrics.denied.count,
		Expiries:  p.metrics.expiries,
		Refused:   func(peer, reason string) { p.metrics.refused.WithLabelValues(peer, reason).Inc() },
		Closed:    func(server string) { p.metrics.closed.WithLabelValues(server).Inc() },
		Ready:     &p.ready,
		Clock:     clock.RealClock{},
		Version:   version(),
		UserAgent: client.UserAgent("liqod", version(), role.Name),
	})
	if err = errors.Join(err, p.register.failed); err != nil {
		return err
	}
	leading := p.metrics.leading.WithLabelValues(role.Name)
	return s.add(role.Name, parts, func(leads bool) {
		if leads {
			leading.Set(1)
			tracker.Resume()
			return
		}
		leading.Set(0)
		tracker.Pause()
	})
}

// serveHealth starts the health server, if the configuration has an address, and adds an actor
// that fails if the server fails. The returned function stops the server. It is called
// after the actors have stopped, so that /readyz reports the shutdown.
func (p *process) serveHealth(ctx context.Context, s *supervisor) (stop func()) {
	if p.cfg.Server.Address == "" {
		return func() {}
	}
	server := health.NewServer(health.ServerConfig{
		Address: p.cfg.Server.Address, Live: p.live, Ready: &p.ready,
		Metrics: p.registry, Log: p.log.Named("server"),
		Closed: func() { p.metrics.closed.WithLabelValues("health").Inc() },
	})
	failed := make(chan error, 1)
	stop = loop.Start(context.WithoutCancel(ctx), func(ctx context.Context) {
		if err := server.Run(ctx); err != nil {
			failed <- err
		}
	})
	s.actors = append(s.actors, Actor{Name: "server", Run: func(ctx context.Context) error {
		select {
		case err := <-failed:
			return err
		case <-ctx.Done():
			return nil
		}
	}})
	return stop
}

func (p *process) live() error {
	var errs []error
	for _, t := range p.trackers {
		if err := t.Check(); err != nil {
			errs = append(errs, fmt.Errorf("role %s: %w", t.role, err))
		}
	}
	return errors.Join(errs...)
}

// behind returns how long the oldest key of each loop has waited for a sync that succeeds.
func (p *process) behind() map[string]time.Duration {
	out := map[string]time.Duration{}
	for _, t := range p.trackers {
		for name, d := range t.Behind() {
			out[name] = max(out[name], d)
		}
	}
	return out
}

func (p *process) wait(ctx context.Context, cancel func(), s *supervisor, signals <-chan os.Signal) error {
	done := make(chan error, 1)
	go func() { done <- s.run(ctx) }()
	var deadline <-chan time.Time
	stopping := s.stopping
	for {
		select {
		case err := <-done:
			p.log.Info("stopped")
			return err
		case sig := <-signals:
			if ctx.Err() != nil || s.isStopping() {
				p.log.Warn("second signal; ending at once", zap.Strings("running", s.running()))
				return errKilled
			}
			p.log.Info("stopping", zap.Stringer("signal", sig))
			cancel()
		case <-stopping:
			stopping = nil
			timer := time.NewTimer(shutdownTimeout)
			defer timer.Stop()
			deadline = timer.C
		case <-deadline:
			return fmt.Errorf("not stopped within %s: %s", shutdownTimeout, strings.Join(s.running(), ", "))
		}
	}
}
