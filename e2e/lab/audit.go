package lab

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// AuditRecord is one answered request to an API server.
type AuditRecord struct {
	// Verb is get, list, watch, create, update, patch, delete or deletecollection.
	Verb string `json:"verb"`
	// RequestURI with its query.
	RequestURI string `json:"requestURI"`
	// UserAgent of the client.
	UserAgent string `json:"userAgent"`
	// User is who asked.
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	// ObjectRef is what it was about.
	ObjectRef struct {
		Resource, Namespace, Name, Subresource, APIGroup string
	} `json:"objectRef"`
	// ResponseStatus holds the HTTP code.
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	// RequestReceivedTimestamp is when it arrived.
	RequestReceivedTimestamp time.Time `json:"requestReceivedTimestamp"`
}

// Resource is the resource with its subresource: pods, pods/status.
func (r AuditRecord) Resource() string {
	if r.ObjectRef.Subresource == "" {
		return r.ObjectRef.Resource
	}
	return r.ObjectRef.Resource + "/" + r.ObjectRef.Subresource
}

// Write says whether the request was to change something.
func (r AuditRecord) Write() bool {
	switch r.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	default:
		return false
	}
}

// Audited returns the requests so far that pass the filter, oldest first. The cluster
// must have been started with Audit.
func (c *Cluster) Audited(filter func(AuditRecord) bool) ([]AuditRecord, error) {
	file, err := os.Open(c.AuditLog())
	if err != nil {
		return nil, fmt.Errorf("opening the audit log: %w", err)
	}
	defer file.Close()
	var found []AuditRecord
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 10<<20)
	for scanner.Scan() {
		var record AuditRecord
		// The last line may be half written.
		if json.Unmarshal(scanner.Bytes(), &record) == nil && filter(record) {
			found = append(found, record)
		}
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	return found, nil
}
