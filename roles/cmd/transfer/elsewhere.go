//go:build !linux

package transfer

import (
	"context"
	"errors"
)

// Run returns an error: volumes are copied in pods, which run on Linux.
func Run(context.Context, Options) error {
	return errors.New("this system is not Linux, where volumes are copied")
}
