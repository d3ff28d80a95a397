package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
)

// openers is how many namespaces are offloaded at once.
const openers = 8

// spreadOut is what many namespaces cost.
type spreadOut struct {
	Namespaces int `json:"namespaces"`
	// Each is the number of objects of each kind in each namespace.
	Each    int      `json:"objectsOfEachKind"`
	Kinds   []string `json:"kinds"`
	Objects int      `json:"objects"`
	// Opening is how long it took, in seconds, until all objects were in the provider.
	Opening float64 `json:"openingSeconds"`
	// One and Many are without and with the namespaces.
	One  footprint `json:"oneNamespace"`
	Many footprint `json:"manyNamespaces"`
	// Again is after a restart of the vkubelet, which took so many seconds.
	Again        footprint `json:"afterRestart"`
	AgainSeconds float64   `json:"restartSeconds"`
}

// footprint is what the processes take while nothing happens.
type footprint struct {
	// MB is the resident memory of each role.
	MB   map[string]float64 `json:"residentMB"`
	Idle *idleness          `json:"idle"`
}

// spreadObjects offloads many namespaces with a few objects of every kind in each.
func (w *world) spreadObjects(ctx context.Context, o objectOptions) (*spreadOut, error) {
	kinds := o.measured(false)
	out := &spreadOut{Namespaces: o.namespaces, Each: o.few}
	for _, k := range kinds {
		out.Kinds = append(out.Kinds, k.name)
	}
	// The EndpointSlices' Service is one more.
	out.Objects = o.namespaces * (o.few*len(kinds) + 1)
	var err error
	if out.One, err = w.footprint(ctx, o, 0); err != nil {
		return nil, err
	}
	begin := time.Now()
	w.lab.Logf("offloading %d namespaces", o.namespaces)
	if err := w.fillNamespaces(ctx, kinds, o); err != nil {
		return nil, err
	}
	if err := w.awaitSpread(ctx, kinds, o); err != nil {
		return nil, err
	}
	out.Opening = time.Since(begin).Seconds()
	if out.Many, err = w.footprint(ctx, o, out.Objects); err != nil {
		return nil, err
	}
	took, _, err := w.restartVKubelet(ctx, reflectLoops(kinds), out.Objects)
	if err != nil {
		return nil, err
	}
	out.AgainSeconds = took.Seconds()
	out.Again, err = w.footprint(ctx, o, out.Objects)
	return out, err
}

func (w *world) footprint(ctx context.Context, o objectOptions, objects int) (footprint, error) {
	idle, err := w.idle(ctx, objects, o.idle)
	if err != nil {
		return footprint{}, err
	}
	memory, err := w.memory(residentLine)
	return footprint{MB: memory, Idle: idle}, err
}

func spreadName(i int) string { return "many-" + strconv.Itoa(i) }

// fillNamespaces makes the namespaces, several at once.
func (w *world) fillNamespaces(ctx context.Context, kinds []objectKind, o objectOptions) error {
	numbers := make(chan int)
	errs := make(chan error, openers)
	var wg sync.WaitGroup
	for range openers {
		wg.Go(func() {
			var all error
			for i := range numbers {
				if all == nil {
					all = w.fillNamespace(ctx, kinds, spreadName(i), o.few)
				}
			}
			errs <- all
		})
	}
	for i := range o.namespaces {
		numbers <- i
	}
	close(numbers)
	wg.Wait()
	close(errs)
	var all error
	for err := range errs {
		all = errors.Join(all, err)
	}
	return all
}

func (w *world) fillNamespace(ctx context.Context, kinds []objectKind, namespace string, few int) error {
	err := w.rome.Offload(ctx, namespace, offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsRemote})
	if err != nil {
		return err
	}
	if err := w.createService(ctx, namespace); err != nil {
		return err
	}
	for _, k := range kinds {
		for i := range few {
			if err := k.create(ctx, w.atRome.core, namespace, "few-"+strconv.Itoa(i), 1); err != nil {
				return fmt.Errorf("creating %s in %s: %w", k.resource, namespace, err)
			}
		}
	}
	return nil
}

// awaitSpread waits until all of it is in the provider.
func (w *world) awaitSpread(ctx context.Context, kinds []objectKind, o objectOptions) error {
	ctx, cancel := context.WithTimeout(ctx, phasePatience)
	defer cancel()
	return lab.Eventually(ctx, func(ctx context.Context) error {
		for _, k := range kinds {
			list, err := k.source(w.atMilan.core, metav1.NamespaceAll).list(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			have := 0
			each(list, func(o metav1.Object) {
				if o.GetLabels()[offloadingv1beta1.OriginLabel] == w.rome.Name {
					have++
				}
			})
			if want := o.namespaces * o.few; have != want {
				return fmt.Errorf("%d %s of %d are in milan", have, k.resource, want)
			}
		}
		return nil
	})
}

// memory is one line of /proc/PID/status of each role and of the mirror, in MB.
func (w *world) memory(line string) (map[string]float64, error) {
	return w.memoryOf(line, func(p process) bool { return p.role })
}

// everyProcess is for memoryOf.
func everyProcess(process) bool { return true }

// memoryOf is one line of /proc/PID/status of some processes, in MB.
func (w *world) memoryOf(line string, which func(process) bool) (map[string]float64, error) {
	out := map[string]float64{}
	for _, p := range w.processes() {
		if !which(p) {
			continue
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
		if err != nil {
			return nil, fmt.Errorf("reading the memory of %s: %w", p.name, err)
		}
		if out[p.name], err = statusMB(string(text), line); err != nil {
			return nil, fmt.Errorf("reading the memory of %s: %w", p.name, err)
		}
	}
	return out, nil
}
