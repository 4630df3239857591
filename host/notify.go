package host

import (
	"cmp"
	"context"
	"os"

	"github.com/custody-project/custody/notify"
)

// NotifyHost returns the fields that all messages of this host have in common.
func NotifyHost(h *Host) notify.Message {
	m := notify.Message{Tenant: h.config.Tenant}
	m.Host, _ = os.Hostname()
	return m
}

// Notifier starts the delivery of messages if host.yaml names a webhook or a hook; otherwise it returns nil. The caller
// closes it. The messages are about the host's tenant unless about names another.
func (h *Host) Notifier(ctx context.Context, about notify.Message, warn func(string)) *notify.Notifier {
	c := h.config.Notify
	if len(c.Webhooks)+len(c.Hooks) == 0 {
		return nil
	}
	host := NotifyHost(h)
	about.Host, about.Tenant = host.Host, cmp.Or(about.Tenant, host.Tenant)
	return notify.Open(ctx, h.Notifications(), c, h.Outside.Web(), about, warn)
}
