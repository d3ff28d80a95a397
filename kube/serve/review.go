package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"time"

	"go.uber.org/zap"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// LargestReview is the largest accepted size of a review, in bytes. An API server accepts objects of
// at most 3 MiB. The review of an update has two of them.
const LargestReview = 2*(3<<20) + (64 << 10)

// Operation is one step of a JSON patch (RFC 6902).
type Operation struct {
	// Op is add, replace or remove.
	Op string `json:"op"`
	// Path is a JSON pointer.
	Path string `json:"path"`
	// Value is the new value.
	Value any `json:"value,omitempty"`
}

// Decision is the answer of a Rule.
type Decision struct {
	// Allowed accepts the request, with the changes of Patch.
	Allowed bool
	// Message is the reason of a refusal, for the user.
	Message string
	// Cause is the type of a cause of a refusal; empty: it has none.
	Cause metav1.CauseType
	// Fields are the parts of the object that are refused, as the API server names fields; empty: all
	// of it.
	Fields []string
	// Code is the HTTP status of a refusal; 0 means 403.
	Code int32
	// Warnings are for the user, with an accepted or a refused request.
	Warnings []string
	// Patch changes the object. It must be empty if Allowed is false.
	Patch []Operation
}

// Allow returns the answer that accepts a request with the changes of patch.
func Allow(patch ...Operation) Decision { return Decision{Allowed: true, Patch: patch} }

// Deny returns the answer that refuses a request, with the reason for the user.
func Deny(message string) Decision { return Decision{Message: message} }

// Rule decides about one request. It must be safe for concurrent use.
type Rule func(ctx context.Context, req *admissionv1.AdmissionRequest) Decision

// Reviews serves a Rule as admission.k8s.io/v1. It answers malformed input with a 4xx
// without calling decide, and a panic of decide with a 500. In both cases the API server
// applies the webhook's failure policy.
func Reviews(log *zap.Logger, decide Rule) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req, code, err := decode(w, r)
		if err != nil {
			if code == http.StatusServiceUnavailable {
				w.Header().Set("Retry-After", retryAfter)
			}
			http.Error(w, err.Error(), code)
			return
		}
		// The time for the body would end the decision.
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		defer Working(r.Context())()
		log := log.With(zap.String("kind", req.Kind.Kind), zap.String("namespace", req.Namespace), zap.String("name", req.Name))
		answer, err := answer(r.Context(), log, decide, req)
		if err != nil {
			log.Error("admission failed", zap.Error(err))
			http.Error(w, "internal error", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		if _, err := w.Write(answer); err != nil {
			log.Debug("admission answer not delivered", zap.Error(err))
		}
	})
}

// decode returns the request of the review in r. With an error, it returns the HTTP status
// of the answer.
func decode(w http.ResponseWriter, r *http.Request) (*admissionv1.AdmissionRequest, int, error) {
	if r.Method != http.MethodPost {
		return nil, http.StatusMethodNotAllowed, fmt.Errorf("method %s is not accepted: accepted is POST", r.Method)
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != runtime.ContentTypeJSON {
		return nil, http.StatusUnsupportedMediaType, fmt.Errorf("content type %q is not accepted: accepted is application/json", r.Header.Get("Content-Type"))
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, LargestReview))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return nil, http.StatusRequestEntityTooLarge, fmt.Errorf("the review is too large: accepted are at most %d bytes", LargestReview)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, http.StatusServiceUnavailable, errors.New("the webhook has too much to do: the review came too slowly")
	}
	if err != nil {
		return nil, http.StatusBadRequest, fmt.Errorf("reading the review: %w", err)
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil {
		return nil, http.StatusBadRequest, fmt.Errorf("decoding the review: %w", err)
	}
	if review.APIVersion != admissionv1.SchemeGroupVersion.String() || review.Kind != "AdmissionReview" {
		return nil, http.StatusBadRequest, fmt.Errorf("%q %q is not accepted: accepted is AdmissionReview of %s",
			review.APIVersion, review.Kind, admissionv1.SchemeGroupVersion)
	}
	if review.Request == nil || review.Request.UID == "" {
		return nil, http.StatusBadRequest, errors.New("the review has no request with a uid")
	}
	return review.Request, 0, nil
}

func answer(ctx context.Context, log *zap.Logger, decide Rule, req *admissionv1.AdmissionRequest) (out []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			log.Error("admission panicked", zap.Any("panic", r), zap.Stack("stack"))
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	decision := decide(ctx, req)
	resp := &admissionv1.AdmissionResponse{UID: req.UID, Allowed: decision.Allowed, Warnings: decision.Warnings}
	if !decision.Allowed {
		resp.Result = statusOf(decision)
	}
	if len(decision.Patch) > 0 && decision.Allowed {
		if resp.Patch, err = json.Marshal(decision.Patch); err != nil {
			return nil, fmt.Errorf("encoding the patch: %w", err)
		}
		kind := admissionv1.PatchTypeJSONPatch
		resp.PatchType = &kind
	}
	return json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Response: resp,
	})
}

func statusOf(decision Decision) *metav1.Status {
	status := &metav1.Status{Status: metav1.StatusFailure, Message: decision.Message, Code: decision.Code, Reason: metav1.StatusReasonForbidden}
	if status.Code == 0 {
		status.Code = http.StatusForbidden
	}
	if status.Code != http.StatusForbidden {
		status.Reason = ""
	}
	var causes []metav1.StatusCause
	if decision.Cause != "" {
		causes = append(causes, metav1.StatusCause{Type: decision.Cause})
	}
	for _, field := range decision.Fields {
		causes = append(causes, metav1.StatusCause{Field: field})
	}
	if causes != nil {
		status.Details = &metav1.StatusDetails{Causes: causes}
	}
	return status
}
