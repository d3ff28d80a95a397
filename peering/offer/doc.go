// Package offer negotiates capacity. In a provider it answers the ResourceRequests of
// consumers with ResourceOffers, within what its policy and its free capacity allow, and
// keeps the Quotas that bound what is offered. In a consumer it asks, and makes
// VirtualNodes of the offers that are accepted. What is decided is decided by pure
// functions (Decide, check, virtualNode); the loops gather facts and write.
package offer
