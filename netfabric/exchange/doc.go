// Package exchange holds the loops of a whole cluster's network: they publish its ranges and
// gateways to peers, answer what peers publish, allocate ranges and addresses, and make the
// Connections that hosts follow. It translates addresses as the Connections say.
package exchange
