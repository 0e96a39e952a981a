"""What results say: one `Judgement`, made by `judge`, that every page, gate and table reads."""
