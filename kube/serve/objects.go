package serve

import (
	"encoding/json"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Objects decodes the object of a create or update request, and the object that an update
// replaces. old is nil for a creation. answer is not nil if the request needs no further
// decision: Objects accepts subresources and other operations, and refuses objects that
// cannot be decoded. Objects that are being deleted need a decision, too.
func Objects[T any, P interface {
	*T
	metav1.Object
}](req *admissionv1.AdmissionRequest) (obj, old P, answer *Decision) {
	if req.Operation != admissionv1.Create && req.Operation != admissionv1.Update || req.SubResource != "" {
		return nil, nil, &Decision{Allowed: true}
	}
	unreadable := func(err error) *Decision {
		return &Decision{Message: fmt.Sprintf("reading the %s: %v", req.Kind.Kind, err), Code: http.StatusBadRequest}
	}
	obj = new(T)
	if err := json.Unmarshal(req.Object.Raw, obj); err != nil {
		return nil, nil, unreadable(err)
	}
	if req.Operation == admissionv1.Create {
		return obj, nil, nil
	}
	old = new(T)
	if err := json.Unmarshal(req.OldObject.Raw, old); err != nil {
		return nil, nil, unreadable(err)
	}
	return obj, old, nil
}

// Reviewed returns what judge decides on the objects of a request. It accepts a write of an object that is being
// deleted, and returns an error while synced reports that the caches of judge are not filled; they have objects.
func Reviewed[T any, P interface {
	*T
	metav1.Object
}](req *admissionv1.AdmissionRequest, synced func() bool, objects string, judge func(obj, old P) (Decision, error)) (Decision, error) {
	switch obj, old, answer := Objects[T, P](req); {
	case answer != nil:
		return *answer, nil
	case obj.GetDeletionTimestamp() != nil:
		return Allow(), nil
	case !synced():
		return Decision{}, fmt.Errorf("the %s are not read yet", objects)
	default:
		return judge(obj, old)
	}
}

// Verdict returns a refusal with the message refused. If refused is empty, it returns an
// acceptance with the warnings.
func Verdict(refused string, warnings []string) Decision {
	if refused != "" {
		return Deny(refused)
	}
	return Decision{Allowed: true, Warnings: warnings}
}
