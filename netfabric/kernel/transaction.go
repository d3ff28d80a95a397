package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
	mdlayher "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	// buffer is what a socket may hold, in bytes. A transaction is sent as a whole, and each
	// of its messages is answered.
	buffer = 16 << 20

	// patience is how long the kernel may take for a transaction.
	patience = 30 * time.Second
)

// transaction queues changes of nftables until they are committed, all or none.
//
// The library has no words for a map of ranges, and nft 1.0.6 crashes when it lists a map
// that has two keys and is not marked as one. So the messages go by way of send, which marks
// them, through the place where the library lets the socket be another.
type transaction struct {
	*nftables.Conn
	namespace int
	err       error // of sending
}

func (k *Kernel) transaction() (tx *transaction, err error) {
	tx = &transaction{namespace: k.cfg.Namespace}
	tx.Conn, err = nftables.New(nftables.WithTestDial(func(batch []mdlayher.Message) ([]mdlayher.Message, error) {
		if len(batch) > 0 {
			tx.err = tx.send(batch)
		}
		return nil, io.EOF // there is no more to read: send has done so
	}))
	return tx, err
}

func (tx *transaction) commit() error {
	if err := tx.Flush(); err != nil {
		return err
	}
	return tx.err
}

// send sends a transaction and waits for its end.
func (tx *transaction) send(batch []mdlayher.Message) error {
	conn, err := mdlayher.Dial(unix.NETLINK_NETFILTER, &mdlayher.Config{NetNS: tx.namespace})
	if err != nil {
		return err
	}
	defer conn.Close()
	err = errors.Join(conn.SetReadBuffer(buffer), conn.SetWriteBuffer(buffer), conn.SetDeadline(time.Now().Add(patience)))
	if err != nil {
		return err
	}
	answers := 0
	for i := range batch {
		if batch[i], err = marked(batch[i]); err != nil {
			return err
		}
		if batch[i].Header.Flags&mdlayher.Acknowledge != 0 {
			answers++
		}
	}
	if _, err := conn.SendMessages(batch); err != nil {
		return err
	}
	return await(conn, answers)
}

// await reads answers until there have been as many, or one is an error.
func await(conn *mdlayher.Conn, answers int) error {
	for answers > 0 {
		messages, err := conn.Receive()
		if err != nil {
			return err
		}
		for _, m := range messages {
			if m.Header.Type == mdlayher.Error {
				answers--
			}
		}
	}
	return nil
}

// marked adds to the message that creates a map of ranges what nft writes there, too. The
// kernel takes the last of several attributes of one kind.
func marked(m mdlayher.Message) (mdlayher.Message, error) {
	const newSet = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWSET
	if m.Header.Type != newSet || !ranged(m) {
		return m, nil
	}
	const bigEndian = 2
	var note []byte
	note = userdata.AppendUint32(note, userdata.NFTNL_UDATA_SET_KEYBYTEORDER, bigEndian)
	note = userdata.AppendUint32(note, userdata.NFTNL_UDATA_SET_DATABYTEORDER, bigEndian)
	note = userdata.AppendUint32(note, userdata.NFTNL_UDATA_SET_DATA_INTERVAL, 1)
	attr, err := mdlayher.MarshalAttributes([]mdlayher.Attribute{{Type: unix.NFTA_SET_USERDATA, Data: note}})
	if err != nil {
		return m, fmt.Errorf("marking a map: %w", err)
	}
	m.Data = append(m.Data, attr...)
	m.Header.Length += uint32(len(attr))
	return m, nil
}

// ranged reports whether the values of a map are two addresses each.
func ranged(m mdlayher.Message) bool {
	ad, err := mdlayher.NewAttributeDecoder(m.Data[4:])
	if err != nil {
		return false
	}
	ad.ByteOrder = binary.BigEndian
	var kind, size uint32
	for ad.Next() {
		switch ad.Type() {
		case unix.NFTA_SET_DATA_TYPE:
			kind = ad.Uint32()
		case unix.NFTA_SET_DATA_LEN:
			size = ad.Uint32()
		}
	}
	one := map[uint32]uint32{nftables.TypeIPAddr.GetNFTMagic(): 4, nftables.TypeIP6Addr.GetNFTMagic(): 16}[kind]
	return size == 2*one && one > 0
}
