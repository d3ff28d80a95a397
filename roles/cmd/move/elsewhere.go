//go:build !linux

package move

import (
	"context"
	"errors"
)

// Copy returns an error: volumes are copied in pods, which run on Linux.
func Copy(context.Context, Options) error {
	return errors.New("this system is not Linux, where volumes are copied")
}
