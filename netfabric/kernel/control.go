//go:build linux

package kernel

import (
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// control is a tunnel device of the kernel.
type control struct {
	client *wgctrl.Client
	name   string
}

func (k *Kernel) openControl(name string) (*control, error) {
	c := &control{name: name}
	err := k.inside(func() (err error) {
		c.client, err = wgctrl.New()
		return err
	})
	return c, err
}

func (c *control) close() { _ = c.client.Close() }

func (c *control) read() (*wgtypes.Device, error) { return c.client.Device(c.name) }

func (c *control) set(config wgtypes.Config) error { return c.client.ConfigureDevice(c.name, config) }

// up does nothing: the kernel opens the port when the link is set up.
func (c *control) up() error { return nil }
