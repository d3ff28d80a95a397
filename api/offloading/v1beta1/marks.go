package v1beta1

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MarksSum returns a short hash of the labels and annotations of an object. It is the same for
// equal ones.
func MarksSum(o metav1.Object) string {
	// Encoding maps of strings never fails, and sorts their keys.
	text, _ := json.Marshal([]map[string]string{o.GetLabels(), o.GetAnnotations()})
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
