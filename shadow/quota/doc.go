// Package quota decides whether the pods of each consumer have room in the consumer's
// Quotas. It counts the pods as the API server has them, and the creations and resizes that
// no cache shows yet. The check for room and its reservation are one step under one lock, so
// the total never exceeds the Quotas. It writes nothing; shadow/pod is its only user.
package quota
