package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"
)

const goodReview = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u1","operation":"CREATE",
"kind":{"group":"","version":"v1","kind":"Pod"},"namespace":"n","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p"}}}}`

func post(t testing.TB, h http.Handler, contentType string, body []byte) *httptest.ResponseRecorder {
	t.Helper()
	req := httptest.NewRequest(http.MethodPost, "/mutate", bytes.NewReader(body))
	req.Header.Set("Content-Type", contentType)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w
}

func fixed(r Decision) Rule {
	return func(context.Context, *admissionv1.AdmissionRequest) Decision { return r }
}

func TestAnswers(t *testing.T) {
	patch := Operation{Op: "add", Path: "/spec/tolerations/-", Value: map[string]any{"key": "k"}}
	for name, tc := range map[string]struct {
		decision Decision
		want     string
	}{
		"allowed": {Allow(), `{"uid":"u1","allowed":true}`},
		"allowed with patch": {Allow(patch, Operation{Op: "remove", Path: "/x"}, Operation{Op: "replace", Path: "/y", Value: false}),
			`{"uid":"u1","allowed":true,"patchType":"JSONPatch","patch":` + encoded(t, `[{"op":"add","path":"/spec/tolerations/-","value":{"key":"k"}},{"op":"remove","path":"/x"},{"op":"replace","path":"/y","value":false}]`) + `}`},
		"denied":             {Deny("no"), `{"uid":"u1","allowed":false,"status":{"metadata":{},"status":"Failure","message":"no","reason":"Forbidden","code":403}}`},
		"denied for a cause": {Decision{Message: "no", Cause: "TooSmall"}, `{"uid":"u1","allowed":false,"status":{"metadata":{},"status":"Failure","message":"no","reason":"Forbidden","details":{"causes":[{"reason":"TooSmall"}]},"code":403}}`},
		"denied as invalid":  {Decision{Message: "no", Code: 422}, `{"uid":"u1","allowed":false,"status":{"metadata":{},"status":"Failure","message":"no","code":422}}`},
		"denied for a part": {Decision{Message: "no", Fields: []string{"spec.type"}},
			`{"uid":"u1","allowed":false,"status":{"metadata":{},"status":"Failure","message":"no","reason":"Forbidden","code":403,"details":{"causes":[{"field":"spec.type"}]}}}`},
		"denied drops the patch": {Decision{Message: "no", Patch: []Operation{patch}},
			`{"uid":"u1","allowed":false,"status":{"metadata":{},"status":"Failure","message":"no","reason":"Forbidden","code":403}}`},
		"warned": {Decision{Allowed: true, Warnings: []string{"old"}}, `{"uid":"u1","allowed":true,"warnings":["old"]}`},
	} {
		t.Run(name, func(t *testing.T) {
			w := post(t, Reviews(zap.NewNop(), fixed(tc.decision)), "application/json; charset=utf-8", []byte(goodReview))
			require.Equal(t, http.StatusOK, w.Code)
			require.Equal(t, "application/json", w.Header().Get("Content-Type"))
			require.JSONEq(t, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":`+tc.want+`}`, w.Body.String())
		})
	}
}

// encoded is how a patch travels: as base64 inside a JSON string.
func encoded(t *testing.T, patch string) string {
	t.Helper()
	out, err := json.Marshal([]byte(patch))
	require.NoError(t, err)
	return string(out)
}

func TestRequestReachesTheFunction(t *testing.T) {
	var got *admissionv1.AdmissionRequest
	post(t, Reviews(zap.NewNop(), func(_ context.Context, req *admissionv1.AdmissionRequest) Decision {
		got = req
		return Allow()
	}), "application/json", []byte(goodReview))
	require.Equal(t, types.UID("u1"), got.UID)
	require.Contains(t, string(got.Object.Raw), `"name":"p"`)
}

func TestMalformedInput(t *testing.T) {
	never := func(context.Context, *admissionv1.AdmissionRequest) Decision { panic("reached") }
	for name, tc := range map[string]struct {
		contentType, body string
		code              int
	}{
		"empty":            {"application/json", "", 400},
		"garbage":          {"application/json", "\x00", 400},
		"no request":       {"application/json", `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, 400},
		"no uid":           {"application/json", `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{}}`, 400},
		"an old version":   {"application/json", strings.Replace(goodReview, "k8s.io/v1", "k8s.io/v1beta1", 1), 400},
		"another kind":     {"application/json", strings.Replace(goodReview, "AdmissionReview", "Pod", 1), 400},
		"another type":     {"text/plain", goodReview, 415},
		"no type":          {"", goodReview, 415},
		"larger than life": {"application/json", goodReview + strings.Repeat(" ", LargestReview), 413},
	} {
		t.Run(name, func(t *testing.T) {
			w := post(t, Reviews(zap.NewNop(), never), tc.contentType, []byte(tc.body))
			require.Equal(t, tc.code, w.Code, w.Body.String())
		})
	}
	w := httptest.NewRecorder()
	Reviews(zap.NewNop(), never).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
}

func TestFailuresOfTheFunction(t *testing.T) {
	for name, decide := range map[string]Rule{
		"panic":            func(context.Context, *admissionv1.AdmissionRequest) Decision { panic("secret") },
		"impossible patch": fixed(Allow(Operation{Op: "add", Path: "/x", Value: func() {}})),
	} {
		t.Run(name, func(t *testing.T) {
			w := post(t, Reviews(zap.NewNop(), decide), "application/json", []byte(goodReview))
			require.Equal(t, http.StatusInternalServerError, w.Code)
			require.NotContains(t, w.Body.String(), "secret")
		})
	}
}

func FuzzHandler(f *testing.F) {
	for _, seed := range []string{goodReview, "", "{}", `{"request":{"uid":"x"}}`, "[1]", "\xff\xfe"} {
		f.Add("application/json", []byte(seed))
	}
	f.Add("a/b; =", []byte("x"))
	h := Reviews(zap.NewNop(), fixed(Allow()))
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		w := post(t, h, contentType, body)
		if w.Code == http.StatusOK {
			var review admissionv1.AdmissionReview
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &review))
			require.NotEmpty(t, review.Response.UID)
			return
		}
		require.Contains(t, []int{400, 413, 415}, w.Code)
	})
}
