package v1beta1

// Condition types of this package's kinds.
const (
	// ConditionReady of a Configuration: the receiver has a view of every range. Of a
	// Connection: packets pass.
	ConditionReady = "Ready"
)
