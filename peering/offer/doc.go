// Package offer negotiates capacity (docs/negotiation.md). In a provider, Provider answers
// the ResourceRequests of consumers with ResourceOffers, within its policy and its free
// capacity, and keeps the Quotas that enforce the offers. In a consumer, Consumer writes
// the ResourceRequests and creates VirtualNodes for accepted offers. The decisions are pure
// functions (Decide, checkOffer, virtualNode); the loops gather the facts and write.
package offer
