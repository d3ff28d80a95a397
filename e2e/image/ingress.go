package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// An ingressList is what is read of a list of Ingresses of networking.k8s.io/v1.
type ingressList struct {
	Items []struct {
		Metadata struct{ Namespace string }
		Spec     struct {
			IngressClassName string
			Rules            []struct {
				Host string
				HTTP struct {
					Paths []struct {
						Path    string
						Backend struct {
							Service struct {
								Name string
								Port struct {
									Name   string
									Number int
								}
							}
						}
					}
				}
			}
		}
	}
}

// A backend is the port of a Service that an Ingress names.
type backend struct {
	namespace, service, portName string
	portNumber                   int
}

// backend is where the Ingresses of a class lead a request to: that of the longest prefix
// of its path among the rules for its host.
func (l *ingressList) backend(class, host, path string) (found backend, ok bool) {
	longest := -1
	for _, i := range l.Items {
		if i.Spec.IngressClassName != class {
			continue
		}
		for _, rule := range i.Spec.Rules {
			for _, p := range rule.HTTP.Paths {
				if rule.Host != host || !strings.HasPrefix(path, p.Path) || len(p.Path) <= longest {
					continue
				}
				longest = len(p.Path)
				to := p.Backend.Service
				found = backend{i.Metadata.Namespace, to.Name, to.Port.Name, to.Port.Number}
			}
		}
	}
	return found, longest >= 0
}

// address is the host and port of a backend: a port that is named is looked up.
func (a *account) address(ctx context.Context, b backend) (string, error) {
	if b.portName != "" {
		var service struct {
			Spec struct {
				Ports []struct {
					Name string
					Port int
				}
			}
		}
		if err := a.read(ctx, "api/v1/namespaces/"+b.namespace+"/services/"+b.service, &service); err != nil {
			return "", err
		}
		for _, p := range service.Spec.Ports {
			if p.Name == b.portName {
				b.portNumber = p.Port
			}
		}
	}
	return net.JoinHostPort(b.service+"."+b.namespace+".svc", strconv.Itoa(b.portNumber)), nil
}

func ingressController(ctx context.Context, class string) error {
	a, err := newAccount(accountDir)
	if err != nil {
		return err
	}
	return serve(ctx, "8080", ingress(a, class))
}

// ingress serves the Ingresses of a class, as the cluster has them at each request.
func ingress(a *account, class string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var list ingressList
		if err := a.read(r.Context(), "apis/networking.k8s.io/v1/ingresses", &list); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		host, _, _ := strings.Cut(r.Host, ":")
		backend, ok := list.backend(class, host, r.URL.Path)
		if !ok {
			http.Error(w, fmt.Sprintf("no Ingress of class %s is for %s%s", class, host, r.URL.Path), http.StatusNotFound)
			return
		}
		address, err := a.address(r.Context(), backend)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: address})
		proxy.Transport = freshClient().Transport
		proxy.ServeHTTP(w, r)
	})
}

// read decodes what the API server answers.
func (a *account) read(ctx context.Context, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	resp, err := a.get(ctx, path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}
