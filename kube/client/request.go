package client

import (
	"net/http"
	"slices"
	"strings"
)

// target is the resource that the path of a request names.
type target struct {
	core                        bool
	resource, name, subresource string
}

// targetOf parses /api/v1/… and /apis/<group>/<version>/…, with any prefix before them.
// For any other path it returns the zero target.
func targetOf(path string) target {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	at := slices.IndexFunc(parts, func(s string) bool { return s == "api" || s == "apis" })
	if at < 0 {
		return target{}
	}
	t := target{core: parts[at] == "api"}
	skip := at + 3
	if t.core {
		skip = at + 2
	}
	if len(parts) <= skip {
		return target{}
	}
	rest := parts[skip:]
	if rest[0] == "namespaces" && len(rest) > 2 && !slices.Contains([]string{"status", "finalize"}, rest[2]) {
		rest = rest[2:]
	}
	for i, field := range []*string{&t.resource, &t.name, &t.subresource} {
		if i < len(rest) {
			*field = rest[i]
		}
	}
	return t
}

// resourceOf returns the path of a resource in all namespaces.
func resourceOf(path string) string {
	if before, _, found := strings.Cut(path, "/namespaces/"); found {
		return before + "/" + targetOf(path).resource
	}
	return path
}

func isWatch(req *http.Request) bool {
	switch req.URL.Query().Get("watch") {
	case "true", "1":
		return req.Method == http.MethodGet
	}
	return false
}

// isStream reports whether the connection stays open as long as the user wants: logs,
// proxies and upgraded connections.
func isStream(req *http.Request) bool {
	if req.Header.Get("Upgrade") != "" || isUpgrade(req) {
		return true
	}
	t := targetOf(req.URL.Path)
	return t.core && (t.subresource == "proxy" || t.resource == "pods" && t.subresource == "log")
}

// isUpgrade checks the path, because an inner round tripper adds the Upgrade header
// later.
func isUpgrade(req *http.Request) bool {
	t := targetOf(req.URL.Path)
	return t.core && t.resource == "pods" && slices.Contains([]string{"exec", "attach", "portforward"}, t.subresource)
}

// isWrite reports whether the request changes objects. Upgraded connections do not count.
func isWrite(req *http.Request) bool {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	return !isUpgrade(req)
}

// verbOf returns the verb that the API server's metrics use for the request. It does not
// distinguish deletecollection from delete.
func verbOf(req *http.Request) string {
	switch req.Method {
	case http.MethodGet:
		switch {
		case isWatch(req):
			return "watch"
		case isStream(req):
			return "connect"
		case targetOf(req.URL.Path).name == "":
			return "list"
		}
		return "get"
	case http.MethodPost:
		if isUpgrade(req) {
			return "connect"
		}
		return "create"
	case http.MethodPut:
		return "update"
	}
	return strings.ToLower(req.Method)
}
