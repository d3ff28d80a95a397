package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"go.uber.org/zap"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/liqod/liqod/netfabric/kernel"
	"github.com/liqod/liqod/netfabric/plan"
)

// gatewayRequest is a state for the gateway process to apply.
type gatewayRequest struct {
	Key   string     `json:"key"` // private
	State plan.State `json:"state"`
}

// runGateway is a gateway: the executor with what it is given, and nothing else.
func runGateway(ctx context.Context, _ []string) error {
	var k *kernel.Kernel
	return answerAll(func(r gatewayRequest) (answer, error) {
		if k == nil {
			key, err := kernel.ParseKey(r.Key)
			if err != nil {
				return answer{}, err
			}
			k = kernel.New(kernel.Config{Key: key, Log: zap.NewNop()})
		}
		return answer{}, k.Apply(ctx, r.State)
	})
}

// tunnelRequest describes a bare tunnel.
type tunnelRequest struct {
	Key      string `json:"key"`  // private
	Peer     string `json:"peer"` // public
	Endpoint string `json:"endpoint"`
	Allowed  string `json:"allowed"`
}

// bareDevice is the device of a bare tunnel.
const bareDevice = "bare"

// runTunnel is what gateways are measured beside: wireguard-go with its own defaults and one
// peer. It is left as it is, so that what is measured beside it stays comparable.
func runTunnel(context.Context, []string) error {
	var d *device.Device
	return answerAll(func(r tunnelRequest) (answer, error) {
		link, err := tun.CreateTUN(bareDevice, plan.TunnelMTU(underlay))
		if err != nil {
			return answer{}, fmt.Errorf("creating a TUN device: %w", err)
		}
		d = device.NewDevice(link, conn.NewDefaultBind(), device.NewLogger(device.LogLevelSilent, ""))
		config, err := r.config()
		if err != nil {
			return answer{}, err
		}
		if err := d.IpcSet(config); err != nil {
			return answer{}, fmt.Errorf("configuring wireguard-go: %w", err)
		}
		return answer{}, d.Up()
	})
}

func (r tunnelRequest) config() (string, error) {
	private, err := base64.StdEncoding.DecodeString(r.Key)
	peer, err2 := base64.StdEncoding.DecodeString(r.Peer)
	if err := errors.Join(err, err2); err != nil {
		return "", fmt.Errorf("reading a key: %w", err)
	}
	return fmt.Sprintf("private_key=%x\nlisten_port=%d\npublic_key=%x\nendpoint=%s\nallowed_ip=%s\n", private, plan.TunnelPort, peer, r.Endpoint, r.Allowed), nil
}
