//go:build !linux

package transfer

import (
	"context"
	"errors"
)

// errElsewhere is the error of all: volumes are copied in pods, which run on Linux.
var errElsewhere = errors.New("this system is not Linux, where volumes are copied")

// Run returns an error.
func Run(context.Context, Options) error { return errElsewhere }

// Relay returns an error.
func Relay(context.Context, Options, [2]string) error { return errElsewhere }
