// Package forge translates objects of this cluster into objects of a provider, and the
// state of the provider's objects into local status. Its functions are pure: they read no
// clock, call no API and do not change their arguments.
//
// A pod becomes a ShadowPod (ShadowPod, UpdateShadowPod). Its status is translated back
// (Status, FinalStatus, PendingStatus).
//
// For each other kind K there are these functions. K returns the object to create in the
// provider, nil for an object that is not reflected, or an error for one that cannot be
// reflected. MergeK brings an existing object in the provider to the wanted state and
// keeps the fields of other writers; if its result is semantically equal to the existing
// object, nothing is to be written. ReplacesK exists for kinds with immutable fields and
// reports whether the existing object must be deleted and created again. Callers leave out
// objects that were reflected from another cluster (Foreign).
package forge
