// Package forge says what an object of this cluster looks like in a provider, and
// what the state of the provider's object means here. It is pure: it reads no clock,
// calls no API and changes none of its arguments.
//
// A pod goes out as a ShadowPod (ShadowPod, UpdateShadowPod) and its status comes
// back (Status, FinalStatus, PendingStatus).
//
// Each other kind K has a function K, that returns what to create in the provider (nil
// for what is not reflected, an error for what cannot be), and a function MergeK, that
// makes what the provider has as wanted and leaves alone what others own there: a
// result that is semantically equal to the argument means that there is nothing to do.
// Where the API server refuses some changes, ReplacesK tells which.
package forge
