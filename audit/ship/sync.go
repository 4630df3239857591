package ship

import "context"

func (l *link) checkSync(ctx context.Context) {}
