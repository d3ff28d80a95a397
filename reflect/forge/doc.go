// Package forge says what an object of this cluster looks like in a provider, and
// what the state of the provider's object means here. It is pure: it reads no clock,
// calls no API and changes none of its arguments.
//
// A pod goes out as a ShadowPod (ShadowPod, UpdateShadowPod) and its status comes
// back (Status, FinalStatus, PendingStatus).
package forge
